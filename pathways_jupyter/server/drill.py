"""The fault drill: break a slice of the embedded cluster on purpose, and heal it."""

from __future__ import annotations

import asyncio
import contextlib

from pathways_jupyter.actions import cluster
from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.elastic import fault_targets
from pathways_jupyter.elastic.fault_targets import FaultTarget
from pathways_jupyter.kube.client import Client
from pathways_jupyter.server import scope as scopes
from pathways_jupyter.server.scope import ResolvedScope, Scope
from pathways_jupyter.service import discovery
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.session import clusters, registry

BREAK_SECONDS = 60.0
"""Longest time that a slice stays down; labextension/src/models/drill.ts says it to the user."""


async def drill(scope: Scope, name: str, number: int, *, heal: bool) -> str:
    """Kill the workers of a slice and keep it down for a while, or end that early; return what was done.

    Args:
      name: The service's.

    Raises:
      ConfigError: The service is not on the embedded cluster, or has no such slice.
      PathwaysError: The cluster cannot be reached.
    """
    from pathways_jupyter.elastic import faults

    place = await scopes.resolve(scope)
    # The service's own label says whether it is an embedded cluster's, and not what the page calls its cluster.
    async with Client(place.cluster) as client:
        service = await discovery.find(client, place.cluster.namespace, name)
    if not service.embedded:
        raise ConfigError(
            f"Service {service.name} is on a real cluster; only slices of the embedded cluster can be broken here.",
            hint=advice("{elastic_inject:slice-down --yes} takes down a slice of your own session there."),
        )
    target = await _target(place, service, number)
    if heal:
        await asyncio.to_thread(faults.heal, target, number)
        return f"Slice {number} may come back."
    return str(await asyncio.to_thread(faults.slice_down, target, number, seconds=BREAK_SECONDS))


async def _target(place: ResolvedScope, service: ServiceInfo, number: int) -> FaultTarget:
    """Return the session of this machine that holds the slice, whose log then says why; else the service."""
    for record in await asyncio.to_thread(registry.sessions):
        target = fault_targets.of_record(record)
        if not (record.is_here and discovery.same_address(record.service, service.address) and target.holds(number)):
            continue
        # A service of another cluster may have the same address.
        with contextlib.suppress(PathwaysError):
            if (await clusters.resolve(record)).server == place.cluster.server:
                return target
    if place.scope.session and (record_of := await asyncio.to_thread(registry.read, place.scope.session)):
        return FaultTarget(record_of, service.name, is_service=True)
    named = {"context": place.scope.context, "namespace": service.namespace, "local": place.scope.local}
    return FaultTarget(await asyncio.to_thread(cluster.where, named), service.name, is_service=True)
