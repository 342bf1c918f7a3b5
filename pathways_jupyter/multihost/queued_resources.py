"""Queued resources of the Cloud TPU API: ask for TPU VMs, wait for them, delete them; blocking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.base.text import count
from pathways_jupyter.multihost import cloud
from pathways_jupyter.multihost.errors import MultihostError

_SCHEDULING: Mapping[str, Mapping[str, bool]] = {
    "on-demand": {},
    "spot": {"spot": True},
    "reserved": {"reserved": True},
    "best-effort": {"preemptible": True},
}
TIERS = tuple(_SCHEDULING)
DEFAULT_RUNTIME = "tpu-ubuntu2204-base"
_HOPELESS = ("FAILED", "SUSPENDING", "SUSPENDED", "DELETING")
_FIRST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 1.0, 10.0
_REQUEST_SECONDS = 60.0
_DELETE_SECONDS = 1800.0


@dataclass(frozen=True)
class NodeInfo:
    """A TPU VM: its name, state (``CREATING``, ``READY`` ...) and accelerator type."""

    name: str
    state: str
    accelerator: str = ""


@dataclass(frozen=True)
class Queued:
    """A queued resource.

    Attributes:
      state: ``ACCEPTED``, ``PROVISIONING``, ``ACTIVE`` ...
      reason: Why it failed; empty while it has not.
      nodes: Its TPU VMs; those that do not exist yet have the state ``-``.
    """

    name: str
    state: str
    tier: str
    reason: str
    nodes: tuple[NodeInfo, ...]

    @property
    def usable(self) -> bool:
        """Return whether all of its nodes are ready."""
        return self.state == "ACTIVE" and bool(self.nodes) and all(each.state == "READY" for each in self.nodes)


@dataclass(frozen=True)
class Spec:
    """A queued resource to create.

    Attributes:
      accelerator: For example ``v4-8``.
      runtime: Version of the VM's image, for example ``tpu-ubuntu2204-base``.
      nodes: How many TPU VMs.
      prefix: Beginning of their names when there are several; the name of the queued resource when empty.
      tier: One of :data:`TIERS`.
    """

    name: str
    accelerator: str
    runtime: str
    nodes: int = 1
    prefix: str = ""
    tier: str = "on-demand"
    network: str = ""
    internal_only: bool = False


def create(project: str, zone: str, spec: Spec) -> None:
    """Ask for TPU VMs; returns when the API has accepted the request.

    Raises:
      ConfigError: A value is invalid.
      ApiError: The API refused, for instance for lack of quota.
    """
    if spec.nodes < 1:
        raise ConfigError(f"{spec.nodes} nodes were requested.", hint="--node-count must be 1 or more.")
    client, place = cloud.client(project, zone)
    node = {
        "accelerator_type": spec.accelerator,
        "runtime_version": spec.runtime,
        "network_config": {"network": spec.network, "enable_external_ips": not spec.internal_only},
        "scheduling_config": _SCHEDULING[spec.tier],
    }
    prefix = spec.prefix or spec.name
    # A single node is named like the first of several, so that the same prefix finds both.
    named: dict[str, Any] = {"node_id": f"{prefix}-0"}
    if spec.nodes > 1:
        named = {"multislice_params": {"node_count": spec.nodes, "node_id_prefix": prefix}}
    resource = {
        "tpu": {"node_spec": [{"parent": place, "node": node, **named}]},
        **({"spot": {}} if spec.tier == "spot" else {"guaranteed": {}} if spec.tier == "reserved" else {}),
    }
    with cloud.explained(f"Creating {spec.name} in {place}"):
        client.create_queued_resource(
            parent=place, queued_resource=resource, queued_resource_id=spec.name, timeout=_REQUEST_SECONDS
        )


def list_(project: str, zone: str, only: str = "") -> list[Queued]:
    """Return the queued resources of a zone whose names contain `only`, sorted by name.

    Raises:
      ApiError: The API refused.
    """
    client, place = cloud.client(project, zone)
    with cloud.explained(f"Listing the queued resources of {place}"):
        found = [each for each in client.list_queued_resources(parent=place) if only in each.name.rpartition("/")[2]]
        nodes = {each.name.rpartition("/")[2]: each for each in client.list_nodes(parent=place)} if found else {}
    return sorted((_described(each, nodes) for each in found), key=lambda each: each.name)


def question(project: str, zone: str, name: str) -> str:
    """Return what to ask before a queued resource is deleted with its TPU VMs.

    Raises:
      ApiError: There is none of this name.
    """
    found = _read(*cloud.client(project, zone), name)
    with_nodes = f" and {count(len(found.nodes), 'TPU VM')}: {', '.join(each.name for each in found.nodes)}"
    return f"Delete queued resource {found.name} ({found.state}){with_nodes if found.nodes else ''}?"


def wait(project: str, zone: str, name: str, *, timeout: float, changed: Callable[[Queued], None]) -> Queued:
    """Wait until a queued resource is ``ACTIVE`` and all of its nodes are ``READY``.

    Args:
      changed: Called with each new state.

    Raises:
      MultihostError: It has failed or was suspended, or is not ready after `timeout` seconds.
      ApiError: There is no such queued resource.
    """
    client, place = cloud.client(project, zone)
    polls, last = Backoff(_FIRST_POLL_SECONDS, _LONGEST_POLL_SECONDS, seconds=timeout), None
    while True:
        now = _read(client, place, name)
        if now != last:
            changed(now)
            last = now
        if now.usable:
            return now
        if now.state in _HOPELESS:
            raise MultihostError(
                f"{name} is {now.state}{f': {now.reason}' if now.reason else ''}.".replace("..", "."),
                hint=advice("{multihost_delete} removes it; then try another zone, type or tier."),
            )
        if polls.is_over:
            ready = sum(each.state == "READY" for each in now.nodes)
            raise MultihostError(
                f"{name} is still {now.state}, with {ready} of {count(len(now.nodes), 'node')} READY.",
                hint="It stays in the queue; wait again with a longer --timeout.",
            )
        polls.sleep()


def delete(project: str, zone: str, name: str, *, force: bool, asynchronous: bool) -> None:
    """Delete a queued resource, and with `force` its TPU VMs too.

    Raises:
      ApiError: There is none, or it still has TPU VMs and `force` is false.
    """
    client, place = cloud.client(project, zone)
    with cloud.explained(f"Deleting {name} in {place}"):
        request = {"name": f"{place}/queuedResources/{name}", "force": force}
        operation = client.delete_queued_resource(request=request, timeout=_REQUEST_SECONDS)
        if not asynchronous:
            operation.result(timeout=_DELETE_SECONDS)


def _read(client: Any, place: str, name: str) -> Queued:
    with cloud.explained(f"Reading {name} in {place}"):
        resource = client.get_queued_resource(name=f"{place}/queuedResources/{name}")
        nodes = {each.name.rpartition("/")[2]: each for each in client.list_nodes(parent=place)}
    return _described(resource, nodes)


def _described(resource: Any, nodes: dict[str, Any]) -> Queued:
    expected: list[str] = []
    kind, tier = "", "spot" if "spot" in resource else "on-demand"
    for spec in resource.tpu.node_spec:
        several, kind = spec.multislice_params, spec.node.accelerator_type
        expected += [f"{several.node_id_prefix}-{number}" for number in range(several.node_count)] or [spec.node_id]
        for name, flags in _SCHEDULING.items():
            if any(getattr(spec.node.scheduling_config, flag) for flag in flags):
                tier = name
    failed = resource.state.failed_data.error.message if "failed_data" in resource.state else ""
    return Queued(
        name=resource.name.rpartition("/")[2],
        state=resource.state.state.name,
        tier=tier,
        reason=" ".join(failed.split()),
        nodes=tuple(NodeInfo(name, nodes[name].state.name if name in nodes else "-", kind) for name in expected),
    )
