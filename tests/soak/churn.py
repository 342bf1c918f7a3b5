"""Connects, computes and disconnects in one kernel for hours, and reports whether anything grew.

Memory, threads and file descriptors of the kernel are read every few rounds, once JAX has warmed up.
"""

from __future__ import annotations

import psutil
from machine import INSTANCE, Kernel, Machine

WARM_ROUNDS = 10
MEMORY_GROWTH = 1.25
"""Bound on a kernel's memory at the end, in multiples of its memory after the warm rounds."""
MORE_THREADS, MORE_FILES = 20, 20

IMPORTS = "import jax, jax.numpy as jnp, pathways_jupyter"
ROUND = f"""
with pathways_jupyter.connect(tpu={{"{INSTANCE}": 2}}, local=True, wait=60, progress=False):
    assert float(jnp.arange(8.0).sum()) == 28.0
assert jax.devices()[0].platform == "cpu"
print("sound")
"""


def run(machine: Machine, *, rounds: int) -> bool:
    """Run `rounds` rounds in one kernel; prints its memory, threads and files. Whether nothing grew or was left."""
    kernel = Kernel()
    process = psutil.Process(kernel.pid)
    first: tuple[float, int, int] | None = None
    last = (0.0, 0, 0)
    broken = 0
    print("| round | memory MB | threads | files |\n| --- | --- | --- | --- |")
    try:
        kernel.run(IMPORTS)
        for number in range(1, rounds + 1):
            said = kernel.run(ROUND)
            if "sound" not in said:
                broken += 1
                print(f"round {number}: {said.strip()[-500:]}")
            if number % WARM_ROUNDS == 0 or number == rounds:
                last = (process.memory_info().rss / 1e6, process.num_threads(), process.num_fds())
                first = first or last
                print(f"| {number} | {last[0]:.0f} | {last[1]} | {last[2]} |", flush=True)
    finally:
        kernel.close()
    assert first is not None
    grew = last[0] > first[0] * MEMORY_GROWTH or last[1] > first[1] + MORE_THREADS or last[2] > first[2] + MORE_FILES
    left = machine.wait_until_empty(seconds=60)
    print(
        f"{broken} of {rounds} rounds broke; {'it grew' if grew else 'nothing grew'}; left: {dict(left) or 'nothing'}"
    )
    return not broken and not grew and not left
