"""A state of 1 GB to the cluster's bucket and back: by the TPU hosts, and through the notebook.

As a program, measures one of them: prints MB/s and MB as JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, Table, in_process, median

_ROUNDS = 3
_ARRAYS, _SIDE = 10, 5000
"""Of float32: 100 MB each."""
_GOAL_SHARE = 0.1
_WAYS = ("hosts", "notebook")
_COLUMNS = ("write", "read")


def run(kubeconfig: str, context: str) -> list[Table]:
    """Measure each in a process of its own, in turn.

    Args:
      kubeconfig: The embedded cluster's.
      context: The context in it.
    """
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in _WAYS}
    for _ in range(_ROUNDS):
        for way in _WAYS:
            taken[way].append(in_process("benchmarks.snapshots", kubeconfig, context, way))

    def rows(what: str) -> list[Row]:
        return [
            Row(way, {each: median([one[f"{what} {each}"] for one in taken[way]]) for each in _COLUMNS})
            for way in _WAYS
        ]

    speeds, peaks = rows("speed"), rows("memory")
    most = max(value or 0.0 for value in peaks[0].values.values())
    size = _ARRAYS * _SIDE**2 * 4 / 1e6
    return [
        Table(
            "A snapshot of 1 GB, to a bucket and back",
            "MB/s",
            speeds,
            notes=("The embedded cluster's bucket, on the same machine: it takes a large part of the time.",),
        ),
        Table(
            "The same: how much more memory the notebook's process has meanwhile",
            "MB, at its peak",
            peaks,
            goal=f"by the hosts, at most {_GOAL_SHARE:.0%} of the state",
            verdict=f"{'met' if most <= _GOAL_SHARE * size else 'missed'} ({most:.1f} of {size:.0f} MB)",
        ),
    ]


def main(kubeconfig: str, context: str, way: str) -> None:
    """Connect, write, read, and disconnect."""
    import jax

    import pathways_jupyter
    from pathways_jupyter.elastic import Manager
    from pathways_jupyter.elastic.checkpoints import Checkpoints
    from pathways_jupyter.elastic.loop import default_mesh
    from pathways_jupyter.elastic.reshard import Form

    with pathways_jupyter.connect(kubeconfig=kubeconfig, context=context, tpu={"tpuv6e:2x2": 2}, wait=60) as session:
        slices = Manager().slice_to_devices
        mesh = default_mesh([slices[index] for index in sorted(slices)])
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "chip"))
        make = jax.jit(lambda key: jax.random.uniform(key, (_SIDE, _SIDE)), out_shardings=sharding)
        state = jax.block_until_ready([make(jax.random.key(number)) for number in range(_ARRAYS)])
        form, leaves = Form.of(state)
        checkpoints = Checkpoints(f"{session.bucket}/bench", keep=1, by_hosts=way == "hosts")
        # What is imported and connected first is no part of it.
        checkpoints.write(time.time_ns(), leaves[:0], None)
        step = time.time_ns()
        taken: dict[str, float] = {}
        assert measure(taken, "write", form.nbytes, lambda: checkpoints.write(step, leaves, None)) == way
        measure(taken, "read", form.nbytes, lambda: checkpoints.read(step, form, form.shardings(mesh)))
        assert not checkpoints.notes, checkpoints.notes
    print(json.dumps(taken))


def measure(taken: dict[str, float], name: str, nbytes: int, work: Callable[[], Any]) -> Any:
    """Do `work`, and note its time, its speed and how far the memory of this process rose above what it was."""
    # Makes the present size the peak.
    Path("/proc/self/clear_refs").write_text("5")
    before, began = _peak(), time.monotonic()
    result = work()
    taken[f"seconds {name}"] = time.monotonic() - began
    taken[f"speed {name}"] = nbytes / 1e6 / taken[f"seconds {name}"]
    taken[f"memory {name}"] = _peak() - before
    return result


def _peak() -> float:
    """Most memory that this process has had resident, in MB."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024 / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
