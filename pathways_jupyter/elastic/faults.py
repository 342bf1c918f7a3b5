"""Faults on purpose, to see what a training run does: a slice goes down, or its node is drained.

Nothing stays broken: Kubernetes replaces killed workers, and cordoned nodes are uncordoned by a process of its own
(:mod:`.cordons`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pathways_jupyter.elastic import cordons, fault_targets
from pathways_jupyter.elastic.fault_targets import FaultTarget, running
from pathways_jupyter.kube import execute, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import names

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session

DRAIN_SECONDS = 30.0
"""Default time that a drained node stays cordoned."""
_SIGNAL = "ILL"
"""The signal that Pathways' own example of a hardware failure sends."""


@dataclass(frozen=True)
class Fault:
    """A fault that was injected.

    Attributes:
      what: ``slice-down`` or ``drain-node``.
      number: The service's number of the slice.
      name: Its numbers for people.
      pods: The workers that were hit.
      nodes: The nodes that were cordoned.
      seconds: How long it lasts; 0 until the worker is back.
    """

    what: str
    number: int
    name: str
    pods: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        hit = ", ".join(self.pods)
        if self.what == "drain-node":
            lasts = f"{self.seconds:g} s"
            if not self.nodes:
                return f"Slice {self.name} was drained (evicted {hit}); its nodes had been cordoned before."
            nodes, were, take = ("node", "was", "takes") if len(self.nodes) == 1 else ("nodes", "were", "take")
            return f"The {nodes} of slice {self.name} {were} drained (evicted {hit}) and {take} no pods for {lasts}."
        held = f" and stays down for {self.seconds:g} s" if self.seconds else ""
        return f"Slice {self.name} was taken down{held} (killed {hit})."


def slice_down(target: Session | FaultTarget, number: int, *, seconds: float = 0.0, yes: bool = False) -> Fault:
    """Kill the workers of a slice.

    Args:
      number: The service's number of the slice, or the session's own.
      seconds: Keep it down for this long.
      yes: Do it on a real cluster too.

    Raises:
      ConfigError: It is another user's slice, or the cluster is a real one and `yes` is false.
      PathwaysError: The cluster could not be reached, or refused.
    """
    return _inject(target, "slice-down", number, seconds, yes=yes)


def drain_node(
    target: Session | FaultTarget, number: int, *, seconds: float = DRAIN_SECONDS, yes: bool = False
) -> Fault:
    """Cordon the nodes of a slice and evict its workers, as ``kubectl drain`` does; other pods there stay.

    Args:
      seconds: How long the nodes stay cordoned.

    Raises:
      As for :func:`slice_down`.
    """
    return _inject(target, "drain-node", number, seconds, yes=yes)


def heal(target: Session | FaultTarget, number: int | None = None) -> tuple[str, ...]:
    """End the faults of a slice (default: of all that may be hit) at once; return the nodes that take pods again.

    Raises:
      ConfigError: It is another user's slice, or there is none with this number.
      PathwaysError: The cluster could not be reached, or refused.
    """
    aim = target if isinstance(target, FaultTarget) else fault_targets.of_record(target.record)
    if number is not None:
        number = aim.find(number)

    async def end(client: Client, namespace: str) -> tuple[str, ...]:
        of = await aim.workers(client, namespace, yes=True)
        if number is not None:
            of.check(number)
        # Others of the service may be another user's, with faults of their own.
        numbers = [each for each in range(of.slices) if aim.holds(each)] if number is None else [number]
        return await cordons.uncordon(client, [cordons.of_slice(of, each) for each in numbers])

    return aim.ask(end)


def _inject(target: Session | FaultTarget, what: str, number: int, seconds: float, *, yes: bool) -> Fault:
    aim = target if isinstance(target, FaultTarget) else fault_targets.of_record(target.record)
    number = aim.find(number)

    async def inject(client: Client, namespace: str) -> Fault:
        of = await aim.workers(client, namespace, yes=yes)
        of.check(number)
        pods = await running(client, of, number)
        nodes: tuple[str, ...] = ()
        if what == "drain-node" or (what == "slice-down" and seconds):
            # Before the workers end, so that none of them is started again there.
            hosts = sorted({str(pod["spec"]["nodeName"]) for pod in pods})
            nodes = await cordons.cordon(client, aim.where, hosts, of, number, seconds)
        if what == "slice-down":
            await asyncio.gather(*(_kill(client, pod, of.embedded, held=bool(seconds)) for pod in pods))
        else:
            for pod in pods:
                name = str(pod["metadata"]["name"])
                eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
                await client.post(objects.PODS.path(of.namespace, name, "eviction"), eviction)
        return Fault(
            what, number, aim.name(number), tuple(str(pod["metadata"]["name"]) for pod in pods), nodes, seconds
        )

    fault = aim.ask(inject)
    aim.note(f"On purpose: {str(fault)[:1].lower()}{str(fault)[1:]}")
    return fault


async def _kill(client: Client, pod: Object, embedded: bool, *, held: bool) -> None:
    name, namespace = str(pod["metadata"]["name"]), str(pod["metadata"]["namespace"])
    if embedded:
        await objects.delete(client, objects.PODS, name, namespace=namespace, grace_seconds=0)
        return
    kill = ["/bin/sh", "-c", f"kill -s {_SIGNAL} 1"]
    await execute.run(client, name, kill, namespace=namespace, container=names.WORKER_CONTAINER)
    if held:
        # Otherwise the kubelet might start the container again in the same pod, on the cordoned node.
        await objects.delete(client, objects.PODS, name, namespace=namespace)
