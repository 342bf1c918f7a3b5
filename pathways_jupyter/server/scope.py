"""Which cluster a page looks at, as it says it; checked before anything is asked of a cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from pathways_jupyter import config
from pathways_jupyter.errors import ConfigError, LocalClusterError
from pathways_jupyter.kube.auth import contexts, load
from pathways_jupyter.kube.cluster import Cluster
from pathways_jupyter.session.registry import SessionRecord


@dataclass(frozen=True)
class Scope:
    """A cluster, and a namespace in it.

    Attributes:
      context: A context of the kubeconfig; its current one when empty.
      namespace: What the context prefers when empty.
      kubeconfig: Another file, or several with the system's path separator between them.
      gke: ``project/region/cluster``, for a cluster without a kubeconfig.
      local: The embedded cluster of this machine.
    """

    context: str = ""
    namespace: str = ""
    kubeconfig: str = ""
    gke: str = ""
    local: bool = False

    def to_json(self) -> dict[str, Any]:
        """This scope as JSON values."""
        return asdict(self)


def parse(given: Mapping[str, Any]) -> Scope:
    """The scope that a request names; what it does not name is left empty.

    Raises:
      ConfigError: A value is of the wrong kind or malformed.
    """
    values: dict[str, Any] = {}
    for field in fields(Scope):
        value = given.get(field.name)
        if value in (None, ""):
            continue
        if field.name == "local":
            value = value is True or str(value).lower() == "true"
        elif not isinstance(value, str):
            raise ConfigError(f"{field.name} must be a text.", hint="Reload the page, and try again.")
        values[field.name] = value
    scope = Scope(**values)
    if scope.gke and scope.gke.count("/") != 2:
        raise ConfigError(f"{scope.gke!r} does not name a GKE cluster.", hint="Write it as PROJECT/REGION/CLUSTER.")
    # The rules for a namespace are the same wherever one is given.
    config.resolve({"namespace": scope.namespace or None}, environ={})
    return scope


def of_record(record: SessionRecord) -> Scope:
    """Where the session of `record` is."""
    given = record.config
    if given.get("cluster"):
        return Scope(
            namespace=record.namespace, gke="/".join(str(given[key]) for key in ("project", "region", "cluster"))
        )
    return Scope(
        context=record.context,
        namespace=record.namespace,
        kubeconfig=str(given.get("kubeconfig") or record.kubeconfigs),
        local=bool(given.get("local")),
    )


async def resolve(scope: Scope) -> Cluster:
    """Finds the cluster of `scope`; its namespace is the one to look in.

    Raises:
      ConfigError: There is no kubeconfig, or it cannot be used.
      ClusterError: Google knows no such cluster.
      LocalClusterError: The embedded cluster does not run.
    """
    found = await _cluster(scope)
    return replace(found, namespace=scope.namespace) if scope.namespace else found


def named(scope: Scope) -> Scope:
    """The same place as :func:`resolve` would find, by its name where `scope` leaves that open."""
    if scope.local or scope.context or scope.kubeconfig or scope.gke:
        return scope
    try:
        current = contexts()[1]
    except ConfigError:
        current = ""
    if current:
        return replace(scope, context=current)
    return replace(scope, local=True) if embedded_cluster_runs() else scope


def embedded_cluster_runs() -> bool:
    """Whether the embedded cluster of this machine is up."""
    from pathways_jupyter.local import cluster

    return cluster.find() is not None


async def _cluster(scope: Scope) -> Cluster:
    if scope.gke:
        project, region, name = scope.gke.split("/")
        return await asyncio.to_thread(load, cluster=name, project=project, region=region)
    if os.pathsep in scope.kubeconfig:
        return load(context=scope.context, environ={**os.environ, "KUBECONFIG": scope.kubeconfig})
    if scope.kubeconfig:
        return load(scope.kubeconfig, scope.context)
    embedded = await asyncio.to_thread(_embedded) if scope.local or not scope.context else None
    if scope.local and embedded is None:
        raise LocalClusterError(
            "The embedded cluster does not run.",
            hint="%pathways connect --local starts it, and so does pathways-jupyter local up.",
        )
    if scope.local and embedded is not None:
        return embedded
    try:
        return load(context=scope.context)
    except ConfigError:
        # Nothing was asked for and nothing is set up: the cluster that runs here is then what is meant.
        if embedded is None:
            raise
        return embedded


def _embedded() -> Cluster | None:
    from pathways_jupyter.local import cluster

    running = cluster.find()
    return None if running is None else load(str(running.kubeconfig), running.context)
