"""Keep nodes from new pods for a while, and allow them again whatever happens to the notebook.

A node that is cordoned here has an annotation that names the service, the slice and the fault. Only such nodes are
uncordoned: one that an administrator cordoned stays as it is. A process of its own uncordons them when the time is
over; it is started before the first one is cordoned, and does not depend on this process.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from pathways_jupyter.base.config import runtime_dir
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.elastic import fault_targets
from pathways_jupyter.elastic.fault_targets import Where, Workers
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import names
from pathways_jupyter.session import clusters

_PATIENCE, _EMBEDDED_PATIENCE = 3600.0, 60.0
"""Seconds without an answer, after the fault's end, until a cluster is taken for gone."""


async def cordon(
    client: Client, where: Where, nodes: Collection[str], of: Workers, number: int, seconds: float
) -> tuple[str, ...]:
    """Keep new pods from `nodes` for `seconds`, because slice `number` of a service or job is down.

    Returns:
      The nodes that were cordoned here.
    """
    fault = f"{of_slice(of, number)}{secrets.token_hex(4)}"
    _uncordon_later(where, seconds, fault, patience=_EMBEDDED_PATIENCE if of.embedded else _PATIENCE)
    done = []
    for name in nodes:
        node = await objects.get(client, objects.NODES, name)
        if (node.get("spec") or {}).get("unschedulable") and not mark(node):
            # An administrator keeps pods from it, and perhaps for longer.
            continue
        await _set(client, name, fault)
        done.append(name)
    return tuple(done)


async def uncordon(client: Client, faults: Collection[str]) -> tuple[str, ...]:
    """Allow pods on the nodes that were cordoned for `faults`; return their names.

    Args:
      faults: Names of faults, or how they begin; see :func:`of_slice`.
    """
    done = []
    for node in (await objects.list_(client, objects.NODES)).items:
        cordon, name = mark(node), str(node["metadata"]["name"])
        if cordon and cordon.startswith(tuple(faults)):
            await _set(client, name, None)
            done.append(name)
            # The process that would have done it later need not wait, unless it runs on another machine.
            lasting(cordon).unlink(missing_ok=True)
    return tuple(done)


def of_slice(of: Workers, number: int) -> str:
    """Return how the names of all faults of a slice begin; services in other namespaces may have the same name."""
    return f"{of.namespace}/{of.name}/{number}/"


def mark(node: Object) -> str:
    """Return the fault for which `node` was cordoned; empty if it was not cordoned here."""
    return str((node["metadata"].get("annotations") or {}).get(names.CORDONED_ANNOTATION) or "")


def lasting(fault: str) -> Path:
    """Return the file that is there as long as `fault` is to last."""
    return runtime_dir() / f"fault-{fault.rpartition('/')[2]}"


async def _set(client: Client, node: str, fault: str | None) -> None:
    change = {
        "metadata": {"annotations": {names.CORDONED_ANNOTATION: fault}},
        "spec": {"unschedulable": None if fault is None else True},
    }
    await objects.patch(client, objects.NODES, node, change)


def _uncordon_later(where: Where, seconds: float, fault: str, *, patience: float) -> None:
    """Start the process that uncordons; detached, so that neither Interrupt nor the kernel's end stops it."""
    lasting(fault).touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "pathways_jupyter.elastic.cordons", fault, str(seconds), str(patience)],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # The record, not the session's id: its file may be gone by then.
    assert process.stdin is not None
    process.stdin.write(fault_targets.to_json(where).encode())
    process.stdin.close()


_LOOK_SECONDS = 0.5
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 1.0, 10.0


def main(arguments: list[str]) -> int:
    """Wait for the end of a fault, then uncordon its nodes; runs in a process that is started before the first cordon.

    It reads from its standard input where the cluster is, and tries until it succeeds: the API server may be away when
    the time is over. It ends early when someone has healed the fault, or when an embedded cluster has ended.

    Args:
      arguments: The fault for which they were cordoned, the seconds that it lasts, and the seconds after that until a
        cluster that does not answer is taken for gone.
    """
    fault, seconds, patience = arguments[0], float(arguments[1]), float(arguments[2])
    where, lasts = fault_targets.from_json(sys.stdin.read()), lasting(fault)
    embedded = clusters.Embedded.of(where)
    over, given_up = time.monotonic() + seconds, time.monotonic() + seconds + patience
    retries = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
    try:
        while time.monotonic() < given_up and not (embedded is not None and embedded.has_ended()):
            if time.monotonic() < over and lasts.exists():
                time.sleep(_LOOK_SECONDS)
                continue
            try:
                # Also when the file is gone: it may have been removed by someone who did not heal.
                clusters.ask(where, lambda client, _: uncordon(client, [fault]))
            except PathwaysError:
                retries.sleep()
            else:
                return 0
        return 1
    finally:
        lasts.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
