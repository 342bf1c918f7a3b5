"""TPU VMs as hosts, found by the beginning of their names."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.multihost import cloud
from pathways_jupyter.multihost.targets import Target, ordered
from pathways_jupyter.service.names import current_user

if TYPE_CHECKING:
    from pathways_jupyter.multihost.targets import Wanted

logger = logging.getLogger(__name__)

_GOOGLE_KEY = ".ssh/google_compute_engine"
_HOST_KEYS = "hostkeys/"
_PUBLIC_KEY = re.compile(r"[A-Za-z0-9@.-]+ [A-Za-z0-9+/=]+")
_REQUEST_SECONDS = 30.0
_UPDATE_SECONDS = 120.0
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
                hint=advice("{multihost_wait} waits until it is."),
            )
    user = _authorize(client, place, [nodes[name] for name in names], wanted)
    with ThreadPoolExecutor(_THREADS) as threads:
        keys = list(threads.map(lambda name: _host_keys(client, nodes[name]), names))
    kind = "internal" if wanted.internal_ip else "external"
    found = []
    for number, name in enumerate(names):
        endpoints = nodes[name].network_endpoints
        for worker, endpoint in enumerate(endpoints):
            address = endpoint.ip_address if wanted.internal_ip else endpoint.access_config.external_ip
            if not address:
                instead = "Leave out" if wanted.internal_ip else "From a VM in the same network, add"
                raise ConfigError(
                    f"Worker {worker} of TPU VM {name} has no {kind} address.", hint=f"{instead} --internal-ip."
                )
            found.append(
                Target(
                    name=f"{name}/{worker}" if len(endpoints) > 1 else name,
                    slice=number,
                    worker=worker,
                    address=address,
                    user=user,
                    # Addresses are given to other VMs later, so a key is known under the VM's own id.
                    key_alias=f"tpu.{nodes[name].id}-{worker}" if nodes[name].id else "",
                    host_keys=keys[number].get(worker, ()),
                )
            )
    return ordered(found, f"TPU VM {wanted.tpu_prefix}")


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
    key = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    if " ".join(key.split()[:2]) in keys:
        return
    metadata = {**node.metadata, _SSH_KEYS: f"{keys.rstrip()}\n{current_user()}:{key}".strip()}
    # The key may be known to the whole project; if not, the login says so.
    with contextlib.suppress(PathwaysError), cloud.explained(f"Adding your key to {node.name}"):
        changed = {"name": node.name, "metadata": metadata}
        client.update_node(node=changed, update_mask={"paths": ["metadata"]}).result(timeout=_UPDATE_SECONDS)
