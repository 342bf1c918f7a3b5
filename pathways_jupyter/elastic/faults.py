"""Faults on purpose: take a slice of this session down, to see what a training run does.

The worker's process is killed, and Kubernetes starts another. To keep the slice down for a while, its nodes are
cordoned first, so that the new pod has no place. A process of its own uncordons them when the time is over: it is
started before they are cordoned and does not depend on this one, so they come back whatever happens to the notebook.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pathways_jupyter import blocking
from pathways_jupyter.errors import ConfigError, SessionError
from pathways_jupyter.kube import objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object, Resource
from pathways_jupyter.service import discovery, names
from pathways_jupyter.session import reach

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session
    from pathways_jupyter.session.registry import SessionRecord

_NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
Answer = TypeVar("Answer")

_UNCORDON = "pathways_jupyter.elastic.uncordon"
_SIGNAL = "ILL"
"""The signal that Pathways' own example of a hardware failure sends."""


@dataclass(frozen=True)
class Fault:
    """A fault that was injected.

    Attributes:
      number: The service's number of the slice.
      pods: The workers that were killed.
      nodes: The nodes that were cordoned.
      seconds: How long they stay cordoned; 0 if they were not.
    """

    number: int
    pods: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        held = f" and stays down for {self.seconds:g} s" if self.seconds else ""
        return f"Slice {self.number} was taken down{held} (killed {', '.join(self.pods)})."


def slice_down(session: Session, number: int, *, seconds: float = 0.0, yes: bool = False) -> Fault:
    """Kill the workers of a slice that `session` holds.

    Args:
      number: The service's number of the slice.
      seconds: Keep it down for this long.
      yes: Do it on a real cluster too.

    Raises:
      ConfigError: The session does not hold that slice, or the cluster is a real one and `yes` is false.
      PathwaysError: The cluster could not be reached, or refused.
    """
    held = sorted(each.number for each in session.record.slices if each.number is not None)
    if number not in held:
        listed = ", ".join(map(str, held)) or "none"
        raise ConfigError(f"Slice {number} is not one of this session's.", hint=f"This session holds: {listed}.")
    where = session.record

    async def inject(client: Client, namespace: str) -> Fault:
        service = await discovery.find(client, namespace, where.service)
        if not service.embedded and not yes:
            raise ConfigError(
                f"{client.cluster.name} is a real cluster: its worker would be killed.", hint="Add --yes to do it."
            )
        workers = await _workers(client, service, number)
        if not workers:
            raise SessionError(f"Slice {number} of {service.name} has no running worker.", hint="Wait until it is up.")
        nodes = tuple(sorted({str(pod["spec"]["nodeName"]) for pod in workers})) if seconds else ()
        if nodes:
            _uncordon_after(where, seconds, nodes)
            for node in nodes:
                await cordon(client, node, number)
        await asyncio.gather(*(_kill(client, pod, bool(service.embedded)) for pod in workers))
        return Fault(number, tuple(str(pod["metadata"]["name"]) for pod in workers), nodes, seconds)

    return ask(where, inject)


def heal(session: Session, number: int) -> tuple[str, ...]:
    """Uncordon the nodes of the service's slices at once; return those that were cordoned.

    Raises:
      PathwaysError: The cluster could not be reached, or refused.
    """

    async def uncordon(client: Client, namespace: str) -> tuple[str, ...]:
        nodes = (await objects.list_(client, _NODES)).items
        cordoned = [
            str(node["metadata"]["name"])
            for node in nodes
            if (node["metadata"].get("annotations") or {}).get(names.CORDONED_ANNOTATION) == str(number)
        ]
        for name in cordoned:
            await cordon(client, name, None)
        return tuple(cordoned)

    return ask(session.record, uncordon)


def ask(where: SessionRecord, question: Callable[[Client, str], Awaitable[Answer]]) -> Answer:
    """Run `question` with a client of a session's cluster and the session's namespace; return its result.

    Raises:
      PathwaysError: The cluster cannot be reached, or `question` raised it.
    """

    async def answer() -> Answer:
        async with Client(await reach.again(where)) as client:
            return await question(client, where.namespace or client.namespace)

    return blocking.run(answer())


async def cordon(client: Client, node: str, number: int | None) -> None:
    """Keep new pods from `node`, because slice `number` is down; None allows them again."""
    annotation = None if number is None else str(number)
    change = {
        "metadata": {"annotations": {names.CORDONED_ANNOTATION: annotation}},
        "spec": {"unschedulable": None if number is None else True},
    }
    await objects.patch(client, _NODES, node, change)


async def _workers(client: Client, service: discovery.ServiceInfo, number: int) -> list[Object]:
    labels = ",".join(
        (
            f"{names.JOBSET_NAME_LABEL}={service.name}",
            f"{names.REPLICATED_JOB_LABEL}={service.worker_job}",
            f"{names.JOB_INDEX_LABEL}={number}",
        )
    )
    found = (await objects.list_(client, objects.PODS, namespace=service.namespace, labels=labels)).items
    return [pod for pod in found if (pod.get("status") or {}).get("phase") == "Running"]


async def _kill(client: Client, pod: Object, embedded: bool) -> None:
    name, namespace = str(pod["metadata"]["name"]), str(pod["metadata"]["namespace"])
    if embedded:
        # Its pods share this machine's process numbers, so that number 1 is not the worker.
        await objects.delete(client, objects.PODS, name, namespace=namespace, grace_seconds=0)
        return
    kill = ["/bin/sh", "-c", f"kill -s {_SIGNAL} 1"]
    await pods.run(client, name, kill, namespace=namespace, container=names.WORKER_CONTAINER)


def _uncordon_after(where: SessionRecord, seconds: float, nodes: tuple[str, ...]) -> None:
    """Start the process that uncordons `nodes`; detached, so that neither Interrupt nor the kernel's end stops it."""
    process = subprocess.Popen(
        [sys.executable, "-m", _UNCORDON, str(seconds), *nodes],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # The record, not the session's id: its file may be gone by then.
    assert process.stdin is not None
    process.stdin.write(json.dumps(where.to_json()).encode())
    process.stdin.close()
