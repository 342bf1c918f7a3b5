"""TPU VMs as hosts, found by the beginning of their names."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathways_jupyter.errors import ConfigError, PathwaysError
from pathways_jupyter.multihost import cloud
from pathways_jupyter.multihost.targets import Target, ordered

if TYPE_CHECKING:
    from pathways_jupyter.multihost.targets import Wanted

logger = logging.getLogger(__name__)

_GOOGLE_KEY = ".ssh/google_compute_engine"
_HOST_KEYS = "hostkeys/"
_PUBLIC_KEY = re.compile(r"[A-Za-z0-9@.-]+ [A-Za-z0-9+/=]+")
_REQUEST_SECONDS = 30.0
_THREADS = 8
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
    for name in names:
        if nodes[name].state.name != "READY":
            raise ConfigError(
                f"TPU VM {name} is {nodes[name].state.name}, not READY.",
                hint="%pathways multihost wait waits until it is.",
            )
    user = _authorize(client, place, [nodes[name] for name in names], wanted)
    with ThreadPoolExecutor(_THREADS) as threads:
        keys = list(threads.map(lambda name: _host_keys(client, nodes[name]), names))
    return ordered(
        (
            _target(nodes[name], name, number, worker, replace(wanted, user=user), keys[number].get(worker, ()))
            for number, name in enumerate(names)
            for worker in range(len(nodes[name].network_endpoints))
        ),
        f"TPU VM {wanted.tpu_prefix}",
    )


def _target(node: Any, name: str, number: int, worker: int, wanted: Wanted, host_keys: tuple[str, ...]) -> Target:
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
        inside=endpoint.ip_address,
        # Addresses are given to other VMs later, so a key is known under the VM's own id.
        key_alias=f"tpu.{node.id}-{worker}" if node.id else "",
        host_keys=host_keys,
    )


def _host_keys(client: Any, node: Any) -> dict[int, tuple[str, ...]]:
    """Return the keys that the workers of a TPU VM have published as their own, by worker.

    A VM writes them into its guest attributes as it starts, if the project allows that. Google's API vouches for them,
    so that they need no acceptance.
    """
    count = len(node.network_endpoints)
    try:
        with cloud.explained(f"Reading the host keys of {node.name}"):
            request = {"name": node.name, "query_path": _HOST_KEYS, "worker_ids": [str(each) for each in range(count)]}
            answer = client.get_guest_attributes(request=request, timeout=_REQUEST_SECONDS)
    except PathwaysError as error:
        # Guest attributes may be off, or reading them forbidden. Then only known hosts count, and --accept-new.
        logger.info("%s", error)
        return {}
    found = [each.query_value.items for each in answer.guest_attributes]
    if len(found) != count:
        # Whose they are is not certain.
        return {}
    lines = ([f"{item.key} {item.value}" for item in items if f"{item.namespace}/" == _HOST_KEYS] for items in found)
    return {worker: tuple(filter(_PUBLIC_KEY.fullmatch, each)) for worker, each in enumerate(lines)}


def _authorize(client: Any, place: str, nodes: list[Any], wanted: Wanted) -> str:
    """Add gcloud's key to those that may log in to TPU VMs, as gcloud does before its first connection.

    Returns:
      The user: the wanted one, or the one of OS Login; empty for the default.

    Raises:
      PathwaysError: A VM uses OS Login, which refuses this user.
    """
    from pathways_jupyter.multihost import oslogin

    project = place.split("/")[1]
    key = Path(wanted.keys[0]).expanduser() if wanted.keys else Path.home() / _GOOGLE_KEY
    said = [oslogin.is_on(node.metadata) for node in nodes]
    session = None
    if any(said) or None in said:
        session = cloud.session()
    in_project = False
    if None in said:
        # Often forbidden; then the key is added as without OS Login, and if that is not enough the login says so.
        with contextlib.suppress(PathwaysError):
            in_project = oslogin.is_on_in_project(session, project)
    uses = [in_project if each is None else each for each in said]
    for node, on in zip(nodes, uses, strict=True):
        if not on:
            _add_key(client, node, key.with_name(f"{key.name}.pub"))
    if not any(uses):
        return wanted.user
    name = oslogin.user(session, project, key.with_name(f"{key.name}.pub"))
    return wanted.user or name


def _add_key(client: Any, node: Any, path: Path) -> None:
    """Add a key to the metadata of a TPU VM."""
    keys = node.metadata.get(_SSH_KEYS, "")
    if not path.is_file():
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
