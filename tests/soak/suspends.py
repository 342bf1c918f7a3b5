"""Suspends and resumes at random moments of deaths, and compares the arrays bit by bit.

A round starts a kernel that suspends and resumes for ever. At a random moment something dies. Then a kernel that
outlived it has its arrays with the same bits, at once or after a resume, unless they died with a proxy that was in use;
and what is saved in the bucket is whole. At the end nothing of the session is left.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Sequence

from leaks import DEATHS, LEASE_SECONDS, PATIENCE_SECONDS
from machine import INSTANCE, Kernel, Machine

LONGEST_LIFE_SECONDS = 6.0
PRESSES = 4
KINDS = (
    "one Interrupt",
    "kernel SIGKILL",
    "supervisor SIGKILL",
    "proxy pod deleted",
    "worker pods deleted",
    "API server restarted",
)
_COSTS_ARRAYS = {"supervisor SIGKILL", "proxy pod deleted", "worker pods deleted"}
"""Deaths that cost the arrays of a session that is not suspended."""

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
    return [np.asarray(each).tobytes() for each in jax.tree.leaves(plain)]

expected = bits()
session.suspend()
session.resume()
assert bits() == expected
print("ready")
"""
LOOP = """
while True:
    session.suspend()
    session.resume()
    assert bits() == expected
"""
AFTERWARDS = f"""
def verdict():
    deadline = time.monotonic() + {PATIENCE_SECONDS}
    while session.is_suspended:
        try:
            session.resume()
        except pathways_jupyter.PathwaysError as error:
            if time.monotonic() > deadline:
                return f"cannot be resumed: {{error}}"
            time.sleep(0.5)
    if session.state not in ("connected", "degraded"):
        return f"state {{session.state}}"
    try:
        return "the same bits" if bits() == expected else "OTHER BITS"
    except Exception as error:
        return f"lost: {{error}}"

print("verdict:", verdict())
session.disconnect()
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
    """Run `rounds` rounds, the kinds in turn; prints a table. Whether no bit changed and nothing leaked."""
    took: dict[str, list[float]] = {kind: [] for kind in only}
    faults: list[str] = []
    for number in range(rounds):
        kind, moment = only[number % len(only)], chance.uniform(0, LONGEST_LIFE_SECONDS)
        began = time.monotonic()
        fault, outcome = one_round(machine, kind, moment)
        took[kind].append(time.monotonic() - began)
        if fault:
            faults.append(f"round {number}, {kind} after {moment:.2f} s: {fault}")
        print(f"round {number}: {kind} after {moment:.2f} s: {fault or outcome}", flush=True)
    print(f"\n| {'death':24} | rounds | median s |\n| --- | --- | --- |")
    for kind, seconds in took.items():
        if seconds:
            print(f"| {kind:24} | {len(seconds)} | {statistics.median(seconds):.1f} |")
    print(*faults, f"{len(faults)} of {rounds} rounds broke", sep="\n")
    return not faults


def one_round(machine: Machine, kind: str, moment: float) -> tuple[str, str]:
    """One death; what was wrong after it, and what became of the arrays."""
    kernel, outcome = Kernel(), "the kernel is gone"
    try:
        said = kernel.run(STATE)
        if "ready" not in said:
            return f"it does not begin: {said[-500:]}", ""
        loop = kernel.begin(LOOP)
        time.sleep(moment)
        _strike(machine, kernel, kind)
        if kind != "kernel SIGKILL":
            fault, outcome = _ask_survivor(kernel, loop, kind)
            if fault:
                return fault, ""
    except TimeoutError as error:
        return f"the kernel does not answer: {error}", ""
    finally:
        kernel.close()
    left = machine.wait_until_empty(seconds=PATIENCE_SECONDS)
    if left:
        return ", ".join(f"{name} is left" for name in left), ""
    another = Kernel()
    try:
        said = another.run(SAVES)
    finally:
        another.close()
    return ("" if "saves are whole" in said else said[-500:]), outcome


def _strike(machine: Machine, kernel: Kernel, kind: str) -> None:
    if kind == "one Interrupt":
        kernel.manager.interrupt_kernel()
    elif kind == "API server restarted":
        machine.cluster.restart_api()
    else:
        DEATHS[kind].strike(machine, kernel)


def _ask_survivor(kernel: Kernel, loop: str, kind: str) -> tuple[str, str]:
    for _ in range(PRESSES):
        with contextlib.suppress(TimeoutError):
            kernel.finish(loop, seconds=PATIENCE_SECONDS / PRESSES)
            break
        kernel.manager.interrupt_kernel()
    said = kernel.run(AFTERWARDS, seconds=3 * PATIENCE_SECONDS)
    outcome = said.partition("verdict: ")[2].partition("\n")[0]
    if outcome == "the same bits" or (kind in _COSTS_ARRAYS and outcome.startswith(("state lost", "lost:"))):
        return "", outcome
    return outcome or said[-500:], ""
