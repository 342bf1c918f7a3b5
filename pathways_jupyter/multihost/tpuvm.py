"""TPU VMs as hosts, found by the beginning of their names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.multihost import cloud
from pathways_jupyter.multihost.targets import Target, ordered
from pathways_jupyter.service.names import login_name

if TYPE_CHECKING:
    from pathways_jupyter.multihost.targets import Selection

_GOOGLE_KEY = ".ssh/google_compute_engine"
_UPDATE_SECONDS = 120.0
_SSH_KEYS = "ssh-keys"


def matching(names: Iterable[str], prefix: str) -> list[str]:
    """Return the one of `names` that is `prefix`, or else all that are ``PREFIX-<number>``, ordered by number."""
    listed = list(names)
    if prefix in listed:
        return [prefix]
    numbered = ((re.fullmatch(rf"{re.escape(prefix)}-(\d+)", name), name) for name in listed)
    return [name for _, name in sorted((int(match[1]), name) for match, name in numbered if match)]


def find(selection: Selection) -> tuple[Target, ...]:
    """Return the workers of the TPU VMs that `selection` names, one slice for each VM, in the order of their numbers.

    Blocking.

    Raises:
      ConfigError: There is no such VM, or one has no address of the requested kind.
      ClusterError: The Cloud TPU API refused, or cannot be reached.
    """
    client, parent = cloud.client(selection.project, selection.zone)
    with cloud.explained(f"Listing the TPU VMs of {parent}"):
        nodes = {each.name.rpartition("/")[2]: each for each in client.list_nodes(parent=parent)}
    names = matching(nodes, selection.tpu_prefix)
    if not names:
        listed = f"TPU VMs there: {', '.join(sorted(nodes))}." if nodes else "There are none in this project and zone."
        raise ConfigError(
            f"There is no TPU VM {selection.tpu_prefix} or {selection.tpu_prefix}-0 in {parent}.", hint=listed
        )
    for name in names:
        if nodes[name].state.name != "READY":
            raise ConfigError(
                f"TPU VM {name} is {nodes[name].state.name}, not READY.",
                hint="gcloud compute tpus queued-resources list shows how far it is; run it when it is ACTIVE.",
            )
    key = Path(selection.keys[0]).expanduser() if selection.keys else Path.home() / _GOOGLE_KEY
    for name in names:
        _add_key(client, nodes[name], key.with_name(f"{key.name}.pub"), selection.user)
    kind = "internal" if selection.internal_ip else "external"
    hosts = []
    for number, name in enumerate(names):
        endpoints = nodes[name].network_endpoints
        for worker, endpoint in enumerate(endpoints):
            address = endpoint.ip_address if selection.internal_ip else endpoint.access_config.external_ip
            if not address:
                instead = "Leave out" if selection.internal_ip else "From a VM in the same network, add"
                raise ConfigError(
                    f"Worker {worker} of TPU VM {name} has no {kind} address.", hint=f"{instead} --internal-ip."
                )
            hosts.append(
                Target(
                    name=f"{name}/{worker}" if len(endpoints) > 1 else name,
                    slice=number,
                    worker=worker,
                    address=address,
                    user=selection.user,
                    # Addresses are given to other VMs later, so a key is known under the name that gcloud gives it.
                    key_alias=f"tpu.{nodes[name].id}-{worker}" if nodes[name].id else "",
                )
            )
    return ordered(hosts, f"TPU VM {selection.tpu_prefix}")


def _add_key(client: Any, node: Any, path: Path, user: str) -> None:
    """Add a key to those that may log in to a TPU VM, as gcloud does before its first connection.

    Args:
      user: Name of the user there; empty for the one of this process.
    """
    if node.metadata.get("enable-oslogin", "").upper() == "TRUE":
        # Then only the keys of a user's OS Login profile count, which gcloud adds.
        return
    keys = node.metadata.get(_SSH_KEYS, "")
    key = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    # Each line is for one user, whom its beginning names.
    its = [line for line in keys.splitlines() if not user or line.startswith(f"{user}:")]
    if not key or any(" ".join(key.split()[:2]) in line for line in its):
        return
    metadata = {**node.metadata, _SSH_KEYS: f"{keys.rstrip()}\n{user or login_name()}:{key}".strip()}
    # The key may be known to the whole project; if not, the login says so.
    with contextlib.suppress(PathwaysError), cloud.explained(f"Adding your key to {node.name}"):
        changed = {"name": node.name, "metadata": metadata}
        client.update_node(node=changed, update_mask={"paths": ["metadata"]}).result(timeout=_UPDATE_SECONDS)
