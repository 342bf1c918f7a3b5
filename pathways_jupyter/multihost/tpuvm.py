"""TPU VMs as hosts, found by the beginning of their names."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathways_jupyter.errors import ConfigError, PathwaysError
from pathways_jupyter.multihost import cloud
from pathways_jupyter.multihost.targets import Target, ordered

if TYPE_CHECKING:
    from pathways_jupyter.multihost.wanted import Wanted

_PUBLIC_KEY = ".ssh/google_compute_engine.pub"
_SSH_KEYS = "ssh-keys"


async def find(wanted: Wanted) -> tuple[Target, ...]:
    """Return the workers of the TPU VMs that `wanted` names, one slice for each VM, in the order of their numbers.

    Raises:
      ConfigError: There is no such VM, or one has no address of the wanted kind.
      ClusterError: The Cloud TPU API refused, or cannot be reached.
    """
    return await asyncio.to_thread(_find, wanted)


def matching(names: Iterable[str], prefix: str) -> list[str]:
    """Return the one of `names` that is `prefix`, or else all that are ``PREFIX-<number>``, ordered by number."""
    known = list(names)
    if prefix in known:
        return [prefix]
    numbered = ((re.fullmatch(rf"{re.escape(prefix)}-(\d+)", name), name) for name in known)
    return [name for _, name in sorted((int(found[1]), name) for found, name in numbered if found)]


def _find(wanted: Wanted) -> tuple[Target, ...]:
    place = cloud.location(wanted.project, wanted.zone)
    client = cloud.client()
    with cloud.explained(f"Listing the TPU VMs of {place}"):
        nodes = {each.name.rpartition("/")[2]: each for each in client.list_nodes(parent=place)}
    names = matching(nodes, wanted.tpu_prefix)
    if not names:
        listed = f"TPU VMs there: {', '.join(sorted(nodes))}." if nodes else "There are none in this project and zone."
        raise ConfigError(f"There is no TPU VM {wanted.tpu_prefix} or {wanted.tpu_prefix}-0 in {place}.", hint=listed)
    found = []
    for number, name in enumerate(names):
        node = nodes[name]
        if node.state.name != "READY":
            raise ConfigError(
                f"TPU VM {name} is {node.state.name}, not READY.", hint="%pathways multihost wait waits until it is."
            )
        _authorize(client, node)
        found += [_target(node, name, number, worker, wanted) for worker in range(len(node.network_endpoints))]
    return ordered(found, f"TPU VM {wanted.tpu_prefix}")


def _target(node: Any, name: str, number: int, worker: int, wanted: Wanted) -> Target:
    endpoint = node.network_endpoints[worker]
    address = endpoint.ip_address if wanted.internal_ip else endpoint.access_config.external_ip
    if not address:
        kind = "internal" if wanted.internal_ip else "external"
        raise ConfigError(
            f"Worker {worker} of TPU VM {name} has no {kind} address.",
            hint="From a VM in the same network, add --internal-ip."
            if kind == "external"
            else "Leave out --internal-ip.",
        )
    return Target(
        name=f"{name}/{worker}" if len(node.network_endpoints) > 1 else name,
        slice=number,
        worker=worker,
        address=address,
        user=wanted.user,
        # Addresses are given to other VMs later, so a key is known under the VM's own id.
        key_alias=f"tpu.{node.id}-{worker}" if node.id else "",
    )


def _authorize(client: Any, node: Any) -> None:
    """Add gcloud's key to those that may log in to a TPU VM, as gcloud does before its first connection."""
    path = Path.home() / _PUBLIC_KEY
    keys = node.metadata.get(_SSH_KEYS, "")
    if node.metadata.get("enable-oslogin", "").upper() == "TRUE" or not path.is_file():
        return
    key = path.read_text(encoding="utf-8").strip()
    if " ".join(key.split()[:2]) in keys:
        return
    from google.cloud import tpu_v2
    from google.protobuf import field_mask_pb2

    line = f"{getpass.getuser()}:{key}"
    metadata = {**node.metadata, _SSH_KEYS: f"{keys.rstrip()}\n{line}".strip()}
    # The key may be known to the whole project; if not, the login says so.
    with contextlib.suppress(PathwaysError), cloud.explained(f"Adding your key to {node.name}"):
        client.update_node(
            node=tpu_v2.Node(name=node.name, metadata=metadata),
            update_mask=field_mask_pb2.FieldMask(paths=["metadata"]),
        ).result(timeout=120)
