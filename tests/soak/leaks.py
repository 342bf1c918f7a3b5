"""End kernels, supervisors, proxies and the API server at random moments, and counts what is left of their sessions.

A round starts a kernel that connects, computes (now and then on the hosts) and disconnects for ever. At a random moment
something dies. What survives must answer and be back on the CPU; then nothing of the session may be left: no Job, pod,
Lease, process, socket or file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from machine import INSTANCE, Kernel, Machine

from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, PODS, Resource, delete, list_
from pathways_jupyter.service.names import SESSION_LABEL
from pathways_jupyter.session import registry, sweep

LEASE_SECONDS = 10
PATIENCE_SECONDS = 60
PRESSES = 4
LONGEST_LIFE_SECONDS = 5.0
"""A death comes at a random moment before."""

# Before the clock starts: an Interrupt in the middle of JAX's own import leaves it half imported.
IMPORTS = """
import jax, jax.numpy as jnp, pathways_jupyter
from pathways_jupyter.colocated import run_cell
"""
LOOP = f"""
for number in range(10_000):
    with pathways_jupyter.connect(
        tpu={{"{INSTANCE}": 1}}, local=True, wait=True, lease_seconds={LEASE_SECONDS}, progress=False
    ):
        assert float(jnp.arange(8.0).sum()) == 28.0
        if number % 3 == 1:
            run_cell("import time; time.sleep(0.5)")
"""
AFTERWARDS = """
session = pathways_jupyter.current_session()
if session is not None:
    session.disconnect()
print("platform", jax.devices()[0].platform, float(jnp.ones(3).sum()))
"""


def signals(number: signal.Signals) -> Callable[[Machine, Kernel], None]:
    """A death of the kernel by a signal."""
    return lambda machine, kernel: os.kill(kernel.pid, number)


def kills_group(machine: Machine, kernel: Kernel) -> None:
    os.killpg(os.getpgid(kernel.pid), signal.SIGKILL)


def restarts(machine: Machine, kernel: Kernel) -> None:
    kernel.manager.restart_kernel(now=True)


def shuts_down(machine: Machine, kernel: Kernel) -> None:
    kernel.manager.shutdown_kernel()


def interrupts(machine: Machine, kernel: Kernel) -> None:
    for _ in range(10):
        kernel.manager.interrupt_kernel()
        time.sleep(0.1)


def kills_supervisor(machine: Machine, kernel: Kernel) -> None:
    for record in registry.sessions():
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGKILL)


def kills_both(machine: Machine, kernel: Kernel) -> None:
    records = registry.sessions()
    os.kill(kernel.pid, signal.SIGKILL)
    for record in records:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGKILL)


def stops_supervisor(machine: Machine, kernel: Kernel) -> None:
    """Freeze the supervisor beyond its Lease while the kernel dies, as a laptop that falls asleep would."""
    records = registry.sessions()
    with contextlib.suppress(ProcessLookupError):
        for record in records:
            os.kill(record.pid, signal.SIGSTOP)
    os.kill(kernel.pid, signal.SIGKILL)
    time.sleep(LEASE_SECONDS * 1.5)
    with contextlib.suppress(ProcessLookupError):
        for record in records:
            os.kill(record.pid, signal.SIGCONT)


def deletes(resource: Resource, labels: str) -> Callable[[Machine, Kernel], None]:
    """The loss of every object of a kind that carries `labels`."""

    async def lose(machine: Machine) -> None:
        async with Client(load(str(machine.cluster.kubeconfig))) as client:
            for item in (await list_(client, resource, namespace="default", labels=labels)).items:
                await delete(client, resource, item["metadata"]["name"], namespace="default")

    return lambda machine, kernel: asyncio.run(lose(machine))


def restarts_api(machine: Machine, kernel: Kernel) -> None:
    os.kill(kernel.pid, signal.SIGKILL)
    machine.cluster.restart_api()


@dataclass(frozen=True)
class Death:
    """One way to end, and whether the kernel outlives it."""

    strike: Callable[[Machine, Kernel], None]
    survived: bool = False


DEATHS = {
    "kernel SIGKILL": Death(signals(signal.SIGKILL)),
    "kernel SIGTERM": Death(signals(signal.SIGTERM)),
    "kernel SIGSEGV": Death(signals(signal.SIGSEGV)),
    "kernel's process group SIGKILL": Death(kills_group),
    "kernel restarted": Death(restarts),
    "kernel shut down": Death(shuts_down),
    "ten Interrupts": Death(interrupts, survived=True),
    "supervisor SIGKILL": Death(kills_supervisor, survived=True),
    "supervisor and kernel SIGKILL": Death(kills_both),
    "supervisor SIGSTOP, kernel SIGKILL": Death(stops_supervisor),
    "proxy pod deleted": Death(deletes(PODS, SESSION_LABEL), survived=True),
    "proxy Job deleted": Death(deletes(JOBS, SESSION_LABEL), survived=True),
    "worker pods deleted": Death(deletes(PODS, "jobset.sigs.k8s.io/replicatedjob-name=worker"), survived=True),
    "API server restarted, kernel SIGKILL": Death(restarts_api),
}


def run(machine: Machine, *, rounds: int, chance: random.Random, only: Sequence[str]) -> bool:
    """Run `rounds` rounds, the kinds in turn; prints a table. Whether nothing leaked and every survivor answered."""
    took: dict[str, list[float]] = {kind: [] for kind in only}
    faults: dict[str, list[str]] = {kind: [] for kind in only}
    for number in range(rounds):
        kind = only[number % len(only)]
        moment = chance.uniform(0, LONGEST_LIFE_SECONDS)
        fault, seconds = one_round(machine, DEATHS[kind], moment)
        took[kind].append(seconds)
        if fault:
            faults[kind].append(f"round {number}, after {moment:.2f} s: {fault}")
        print(
            f"round {number}: {kind} after {moment:.2f} s: {fault or f'nothing left {seconds:.1f} s later'}", flush=True
        )
    print(f"\n| {'death':36} | rounds | faults | median s | max s |\n| --- | --- | --- | --- | --- |")
    for kind, seconds in took.items():
        if seconds:
            middle, most = statistics.median(seconds), max(seconds)
            print(f"| {kind:36} | {len(seconds)} | {len(faults[kind])} | {middle:.1f} | {most:.1f} |")
    for each in (fault for found in faults.values() for fault in found):
        print(each)
    return not any(faults.values())


def one_round(machine: Machine, death: Death, moment: float) -> tuple[str, float]:
    """One death; what was wrong after it, and how many seconds it took until nothing was left."""
    kernel = Kernel()
    try:
        kernel.run(IMPORTS)
        loop = kernel.begin(LOOP)
        time.sleep(moment)
        death.strike(machine, kernel)
        began = time.monotonic()
        if death.survived and (fault := _ask_survivor(kernel, loop)):
            return fault, time.monotonic() - began
    finally:
        kernel.close()
    # Where the supervisor died with its kernel, the Lease has to run out; the next connect sweeps the files.
    left = machine.wait_until_empty(seconds=LEASE_SECONDS if death.strike is kills_both else PATIENCE_SECONDS)
    if left and death.strike is kills_both:
        asyncio.run(sweep.sweep_dead())
        left = machine.wait_until_empty(seconds=PATIENCE_SECONDS)
    return ", ".join(f"{name} is left" for name in left), time.monotonic() - began


def _ask_survivor(kernel: Kernel, loop: str) -> str:
    """Return the fault of a kernel that outlived the death; empty when it answers, and computes on its CPU again."""
    try:
        # Python drops an Interrupt that hits a callback of its garbage collector: one presses again.
        for _ in range(PRESSES):
            kernel.manager.interrupt_kernel()
            with contextlib.suppress(TimeoutError):
                kernel.finish(loop, seconds=PATIENCE_SECONDS / PRESSES)
                break
        said = kernel.run(AFTERWARDS, seconds=PATIENCE_SECONDS)
    except TimeoutError as error:
        return f"the kernel does not answer: {error}"
    return "" if "platform cpu 3.0" in said else f"the kernel says {said.strip()[-300:]!r}"
