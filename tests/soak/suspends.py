"""Suspends and resumes with deaths in each of their phases, and compares the arrays bit by bit.

A kernel suspends and resumes for ever, and writes down the phases that it begins. In each round something dies at a
random moment of one. Then a kernel that outlived it has its arrays with the same bits, at once or after a resume, and
goes on with the next round, unless they died with a proxy that was in use. After the end of a kernel, what is saved in
the bucket is whole, and nothing else of its session is left.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil
from leaks import DEATHS, LEASE_SECONDS, PATIENCE_SECONDS
from machine import INSTANCE, Kernel, Machine

PRESSES = 8
SAME, GONE = "the same bits", "the kernel is gone"
KINDS = (
    "one Interrupt",
    "kernel SIGKILL",
    "supervisor SIGKILL",
    "proxy pod deleted",
    "worker pods deleted",
    "API server restarted",
    "daemon SIGKILL",
    "bucket SIGKILL",
)
_COSTS_ARRAYS = {
    "supervisor SIGKILL",
    "proxy pod deleted",
    "worker pods deleted",
    "API server restarted",
    "daemon SIGKILL",
}
"""Deaths that cost the arrays of a session that is not suspended; its tunnel on the embedded cluster has no relay."""
PHASES = {
    "compute": 0.05,
    "write the arrays": 0.1,
    "remove the proxy": 0.1,
    "get slices": 0.6,
    "read the arrays": 0.1,
}
"""The phases, and about how many seconds each takes."""

STATE = f"""
import time
import jax, jax.numpy as jnp, numpy as np, pathways_jupyter
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

session = pathways_jupyter.connect(
    tpu={{"{INSTANCE}": 1}}, local=True, wait=60, lease_seconds={LEASE_SECONDS}, progress=False
)
mesh = Mesh(np.array(session.devices()), ("x",))
w = np.random.default_rng(0).normal(size=(256, 1024)).astype("bfloat16")
state = {{
    "w": jax.device_put(w, NamedSharding(mesh, P("x"))),
    "key": jax.random.key(5),
    "pair": (jnp.arange(7), jax.device_put(np.float32(0.1), session.devices()[3])),
}}

def bits():
    plain = {{**state, "key": jax.random.key_data(state["key"])}}
    # Of a copy, because an array that was fetched once keeps its values in the kernel.
    return [np.asarray(jnp.copy(each)).tobytes() for each in jax.tree.leaves(plain)]

expected = bits()
session.suspend()
session.resume()
assert bits() == expected
print("ready")
"""
STALL_SECONDS = 30
"""A phase that takes longer leaves the stacks of the kernel's threads beside the file of the phases."""
LOOP = f"""
import faulthandler
faulthandler.cancel_dump_traceback_later()
stacks = open({{path!r}} + ".stacks", "w")

def begin(phase, how_far=""):
    faulthandler.dump_traceback_later({STALL_SECONDS}, file=stacks)
    with open({{path!r}}, "a") as file:
        print(phase, file=file)

while True:
    begin("compute")
    assert bits() == expected
    session.suspend(report=begin)
    begin("get slices")
    session.resume(report=begin)
"""
AFTERWARDS = f"""
def verdict():
    deadline = time.monotonic() + {PATIENCE_SECONDS}
    while session.is_suspended or session.state in ("suspending", "resuming"):
        try:
            # The state may be that of a moment ago, of a suspend that was interrupted.
            session.resume() if session.is_suspended else time.sleep(0.1)
        except pathways_jupyter.PathwaysError as error:
            if time.monotonic() > deadline:
                return f"cannot be resumed: {{error}}"
            time.sleep(0.5)
    if session.state not in ("connected", "degraded"):
        return f"state {{session.state}}"
    try:
        return "{SAME}" if bits() == expected else "OTHER BITS"
    except Exception as error:
        return f"lost: {{error}}"

print("verdict:", verdict())
"""
SAVES = f"""
import pathways_jupyter
with pathways_jupyter.connect(tpu={{"{INSTANCE}": 1}}, local=True, wait=60, progress=False) as session:
    for each in session.saves.list():
        assert each.saved, each.unkept
        loaded = session.load(each.name)["arrays"]
        assert len(loaded) == 4, loaded
        session.saves.delete(each.name)
print("saves are whole")
"""


def run(machine: Machine, *, rounds: int, chance: random.Random, only: Sequence[str]) -> bool:
    """Run `rounds` rounds, each kind in each phase in turn; prints a table. Whether no bit changed, nothing leaked."""
    cases = list(itertools.product(only, PHASES))
    chance.shuffle(cases)
    struck: Counter[tuple[str, str]] = Counter()
    faults: list[str] = []
    kernel: Kernel | None = None
    for number, (kind, wanted) in zip(range(rounds), itertools.cycle(cases), strict=False):
        began = time.monotonic()
        # Perhaps its daemon was killed.
        machine.up()
        kernel = kernel or _begin()
        phase, outcome = one_round(machine, kernel, kind, wanted, chance.uniform(0, PHASES[wanted]))
        struck[kind, phase] += 1
        fault = "" if outcome in (SAME, GONE) or (kind in _COSTS_ARRAYS and _is_loss(outcome)) else outcome
        if outcome != SAME or number == rounds - 1:
            kernel.close()
            kernel, fault = None, fault or _left(machine)
        place = f"round {number}, {kind} in {phase!r}"
        if fault:
            faults.append(f"{place}: {fault}")
        print(f"{place}: {fault or outcome} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"\n| {' | '.join(('death', *PHASES))} |\n|{' --- |' * (len(PHASES) + 1)}")
    for kind in only:
        print(f"| {' | '.join((kind, *(str(struck[kind, phase]) for phase in PHASES)))} |")
    print(*faults, f"{len(faults)} of {rounds} rounds broke", sep="\n")
    return not faults


def _begin() -> Kernel:
    kernel = Kernel()
    said = kernel.run(STATE)
    if "ready" not in said:
        kernel.close()
        raise RuntimeError(f"it does not begin: {said[-500:]}")
    return kernel


def one_round(machine: Machine, kernel: Kernel, kind: str, phase: str, delay: float) -> tuple[str, str]:
    """One death, so many seconds after a phase began; the phase in which it came, and what became of the arrays."""
    phases = Path(tempfile.gettempdir()) / "phases"
    stacks = phases.with_name("phases.stacks")
    phases.write_text("")
    stacks.write_text("")
    try:
        loop = kernel.begin(LOOP.format(path=str(phases)))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while f"{phase}\n" not in phases.read_text():
            if time.monotonic() > deadline:
                return phase, f"it did not come to that: {kernel.finish(loop, seconds=1)[-1000:]}"
            time.sleep(0.002)
        time.sleep(delay)
        phase = phases.read_text().splitlines()[-1]
        _strike(machine, kernel, kind)
        return phase, GONE if kind == "kernel SIGKILL" else _ask_survivor(kernel, loop)
    except TimeoutError as error:
        return phase, f"the kernel does not answer: {error}\n{stacks.read_text()}"


def _is_loss(outcome: str) -> bool:
    return outcome.startswith(("state lost", "lost:"))


def _left(machine: Machine) -> str:
    """Return what is wrong with what the session has left; empty if nothing is."""
    machine.up()
    if left := machine.wait_until_empty(seconds=PATIENCE_SECONDS):
        return ", ".join(f"{name} is left" for name in left)
    if not any(machine.cluster.directory.rglob("saved/*/*/index.json")):
        return ""
    another = Kernel()
    try:
        said = another.run(SAVES)
    finally:
        another.close()
    return "" if "saves are whole" in said else said[-500:]


def _strike(machine: Machine, kernel: Kernel, kind: str) -> None:
    if kind == "one Interrupt":
        kernel.manager.interrupt_kernel()
    elif kind == "API server restarted":
        machine.cluster.restart_api()
    elif kind == "daemon SIGKILL":
        os.kill(machine.cluster.pid, signal.SIGKILL)
    elif kind == "bucket SIGKILL":
        for process in psutil.Process(machine.cluster.pid).children(recursive=True):
            if process.name() == "pathways-bucket":
                process.kill()
    else:
        DEATHS[kind].strike(machine, kernel)


def _ask_survivor(kernel: Kernel, loop: str) -> str:
    for _ in range(PRESSES):
        with contextlib.suppress(TimeoutError):
            ended = kernel.finish(loop, seconds=PATIENCE_SECONDS / PRESSES)
            if not kernel.manager.is_alive():
                return ended[-3000:]
            break
        kernel.manager.interrupt_kernel()
    said = kernel.run(AFTERWARDS, seconds=3 * PATIENCE_SECONDS)
    return said.partition("verdict: ")[2].partition("\n")[0] or said[-500:]
