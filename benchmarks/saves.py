"""Suspend and resume of 1 GB beside Orbax, which saves and restores the same arrays from the notebook.

Cluster and bucket are a round trip away from the notebook, and near each other. As a program, measures one of them:
prints seconds and MB as JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.link import Link
from benchmarks.measure import Row, Table, in_process
from benchmarks.snapshots import measure
from pathways_jupyter.base import runtime_files
from pathways_jupyter.session.clusters import Storage

_ARRAYS, _SIDE = 10, 5000
"""Of float32: 100 MB each."""
_GIGABIT = 125_000_000.0
_LINKS: dict[str, tuple[float, float | None]] = {
    "here": (0.0, None),
    "100 ms away": (0.05, None),
    "100 ms away, 1 Gbit/s": (0.05, _GIGABIT),
}
"""Seconds each way, and bytes a second."""
_GOAL_TIMES, _GOAL_MB = 3.0, 50.0
_WAYS = {"session": "suspend, resume", "orbax": "Orbax, async, from the notebook"}


def run(kubeconfig: str, context: str) -> list[Table]:
    """Measure each in a process of its own, at each distance.

    Args:
      kubeconfig: The embedded cluster's.
      context: The context in it.
    """
    storage = Storage.read(Path(kubeconfig).with_name(runtime_files.STORAGE))
    assert storage is not None
    taken = {(way, place): _taken(Path(kubeconfig), context, storage, way, place) for place in _LINKS for way in _WAYS}
    rows = {
        what: [
            Row(f"{name}, {place}", {each: taken[way, place][f"{what} {each}"] for each in columns})
            for place in _LINKS
            for way, name in _WAYS.items()
        ]
        for what, columns in {"seconds": ("save", "restore", "first step"), "memory": ("save", "restore")}.items()
    }

    def times(place: str) -> float:
        both = {way: sum(taken[way, place][f"seconds {each}"] for each in ("save", "restore")) for way in _WAYS}
        return both["orbax"] / both["session"]

    _, far, shaped = _LINKS
    most = max(taken["session", each][f"memory {what}"] for each in _LINKS for what in ("save", "restore"))
    return [
        Table(
            "1 GB of arrays: saved with the proxy removed, and back with a new one",
            "s",
            rows["seconds"],
            goal=f"at 100 ms at least {_GOAL_TIMES:.0f} times as fast as Orbax",
            verdict=", ".join(
                f"{place} {'met' if times(place) >= _GOAL_TIMES else 'missed'} ({times(place):.1f} times)"
                for place in (far, shaped)
            ),
            notes=(
                "Suspend removes the proxy, and resume gets another one and deletes what was saved; Orbax's rows have "
                "none of that. gcsfs deletes five files in a round trip from an emulator, as here, 100 from Google.",
                "Without a rate the link is as fast as this machine, as no line of 100 ms is; 1 Gbit/s is more than a "
                "laptop has. The bucket is a process of this machine.",
            ),
        ),
        Table(
            "The same: how much more memory the notebook's process has meanwhile",
            "MB, at its peak",
            rows["memory"],
            goal=f"at most {_GOAL_MB:.0f} MB for suspend and resume",
            verdict=f"{'met' if most <= _GOAL_MB else 'missed'} ({most:.0f} MB)",
        ),
    ]


def _taken(kubeconfig: Path, context: str, storage: Storage, way: str, place: str) -> dict[str, float]:
    (address,) = {each for each in storage.variables.values() if each.startswith("http://")}
    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        # A link takes the server's address from a file.
        of_bucket = Path(directory) / "bucket"
        of_bucket.write_text(address.replace("http://", "https://"))
        delay, rate = _LINKS[place]
        with (
            Link(kubeconfig, delay=delay, up=rate, down=rate) as link,
            Link(of_bucket, delay=delay, up=rate, down=rate) as bucket,
        ):
            over = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{bucket.port}", address)
            variables = {name: value.replace(address, over) for name, value in storage.variables.items()}
            found: dict[str, float] = in_process(
                "benchmarks.saves",
                *(str(link.write(Path(directory) / "kubeconfig")), context, storage.bucket, way),
                environ={**os.environ, **variables},
                timeout=600,
            )
            return found


def main(kubeconfig: str, context: str, bucket: str, way: str) -> None:
    """Connect, save, restore, compute, and disconnect."""
    import jax
    import numpy as np

    import pathways_jupyter

    with pathways_jupyter.connect(
        kubeconfig=kubeconfig, context=context, gcs_bucket=bucket, tpu={"tpuv6e:2x2": 2}, wait=60, relay=False
    ) as session:
        mesh = jax.sharding.Mesh(np.array(session.devices()).reshape(2, 4), ("slice", "chip"))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "chip"))
        make = jax.jit(lambda key: jax.random.uniform(key, (_SIDE, _SIDE)), out_shardings=sharding)
        state: dict[str, Any] = {str(number): make(jax.random.key(number)) for number in range(_ARRAYS)}
        del mesh, sharding
        jax.block_until_ready(state)
        nbytes = sum(each.nbytes for each in state.values())
        taken: dict[str, float] = {}
        if way == "session":
            # What is imported first is no part of it.
            session.save("small", {"n": 1})
            measure(taken, "save", nbytes, lambda: session.suspend({"state": state}, yes=True))
            measure(taken, "restore", nbytes, session.resume)
        else:
            import orbax.checkpoint as ocp

            place = f"{bucket}/orbax-{time.time_ns()}"
            saver = ocp.StandardCheckpointer()
            saver.save(f"{place}/small", {"n": np.zeros(1)})
            saver.wait_until_finished()

            def save() -> None:
                saver.save(f"{place}/state", state)
                saver.wait_until_finished()

            def restore() -> dict[str, Any]:
                like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
                return dict(jax.block_until_ready(saver.restore(f"{place}/state", like)))

            measure(taken, "save", nbytes, save)
            state = measure(taken, "restore", nbytes, restore)
        measure(taken, "first step", nbytes, lambda: float(jax.jit(lambda x: x.sum())(state["0"])))
    print(json.dumps(taken))


if __name__ == "__main__":
    main(*sys.argv[1:])
