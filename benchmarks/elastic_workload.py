"""One process's measurements for :mod:`benchmarks.elastic`: prints ms as JSON."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.elastic import DOWN_SECONDS, SLICES
from benchmarks.measure import median

if TYPE_CHECKING:
    from pathways_jupyter.kube.client import Client
    from pathways_jupyter.session.kernel.session import Session

_ROUNDS = 3
_STEPS_BEFORE = 30
_SLICE = 1
_LAYERS = 24
"""Enough for a compilation that shows."""
_LOSSES_SECONDS = 120.0
"""No further round of losses begins after this."""
_COMPILE_SECONDS = 5.0
"""Pause before the loss, so that the smaller meshes are compiled by then."""
_SNAPSHOTS_SECONDS = 60.0
"""No further round of the snapshots' bench begins after this."""


def main(kubeconfig: str) -> None:
    """Connect, measure, and disconnect."""
    import pathways_jupyter
    from pathways_jupyter.elastic import Manager

    with pathways_jupyter.connect(kubeconfig=kubeconfig, tpu={"tpuv6e:2x2": SLICES}) as session:
        number = next(each.number or 0 for each in session.record.slices if each.index == _SLICE)

        def kill() -> float:
            return _kill(session, number)

        repeated: list[int] = []
        runs: dict[str, Callable[[Callable[[], float]], float]] = {
            "compiled ahead": lambda kill: _ours(kill, repeated, precompile=True),
            "compiled when needed": lambda kill: _ours(kill, repeated, precompile=False),
            "peer, two slices": lambda kill: _theirs(kill, 2),
            "peer, defaults": lambda kill: _theirs(kill, None),
        }
        taken: dict[str, list[float]] = {name: [] for name in runs}
        began = time.monotonic()
        for number in range(_ROUNDS):
            if number and time.monotonic() - began > _LOSSES_SECONDS:
                break
            for name, run in runs.items():
                taken[name].append(1000 * run(kill))
                healthy = Manager(settle_seconds=0.0)
                healthy.start_monitoring()
                healthy.health.wait_for(SLICES, timeout=120)
                healthy.close()
        result: dict[str, Any] = {name: median(values) for name, values in taken.items()}
        result["repeated"] = max(repeated)
        result["snapshots"] = _snapshots()
    print(json.dumps(result))


def _kill(session: Session, number: int) -> float:
    """Kill the worker of a slice, and keep its node from a new one; return when it was killed, as seconds of the epoch.

    By a signal to its process, as a failing machine would end it: the clock starts at that very moment, and not when a
    request for it was sent, nor when anything had noticed.
    """
    from pathways_jupyter.elastic import cordons, fault_targets
    from pathways_jupyter.kube import execute
    from pathways_jupyter.service import names

    target = fault_targets.of_record(session.record)

    async def prepare(client: Client, namespace: str) -> list[int]:
        of = await target.workers(client, namespace, yes=True)
        found = await fault_targets.running(client, of, number)
        nodes = sorted({str(pod["spec"]["nodeName"]) for pod in found})
        await cordons.cordon(client, target.where, nodes, of, number, DOWN_SECONDS)
        pids = []
        for pod in found:
            # What the embedded cluster's own `kill` takes for process 1.
            said = await execute.run(
                client,
                str(pod["metadata"]["name"]),
                ["/bin/sh", "-c", "echo $PATHWAYS_LOCAL_MAIN_PID"],
                namespace=of.namespace,
                container=names.WORKER_CONTAINER,
            )
            pids.append(int(said.stdout))
        return pids

    pids = target.ask(prepare)
    at = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return at


def _step(state: Any, batch: Any) -> Any:
    import jax

    def loss(weights: Any) -> Any:
        x = batch
        for _ in range(_LAYERS):
            x = jax.numpy.tanh(x @ weights)
        return (x**2).mean()

    value, slope = jax.value_and_grad(loss)(state["w"])
    return {"w": state["w"] - 0.01 * slope, "n": state["n"] + 1}, {"loss": value}


def _state() -> dict[str, Any]:
    import numpy as np

    return {"w": np.full((256, 256), 1e-2, np.float32), "n": np.int32(0)}


def _batches(at: int, then: Callable[[], None]) -> Iterator[Any]:
    """Batches without end; `then` runs before number `at`."""
    import numpy as np

    for number in itertools.count():
        if number == at:
            then()
        yield np.ones((24, 256), np.float32)


def _patient(batches: Iterator[Any]) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        if number == _STEPS_BEFORE:
            time.sleep(_COMPILE_SECONDS)
        yield batch


def _ours(kill: Callable[[], float], repeated: list[int], *, precompile: bool) -> float:
    """Return the seconds from a kill to the next complete step; append the number of steps that were repeated."""
    from pathways_jupyter.elastic import Manager, train_loop
    from pathways_jupyter.elastic.record import Kind, Record

    record, killed = Record(), []
    # When everything is compiled, and in the middle between two snapshots.
    data = _batches(_STEPS_BEFORE + 5, lambda: killed.append(kill()))
    if precompile:
        data = _patient(data)
    train_loop(_step, _state(), data, steps=_STEPS_BEFORE + 40, manager=Manager(), record=record, precompile=precompile)
    repeated += [event.data["repeated"] for event in record.events if event.kind is Kind.RESTORED]
    resumed = next(event for event in record.events if event.kind is Kind.RESUMED)
    return resumed.at - killed[0]


def _theirs(kill: Callable[[], float], minimum: int | None) -> float:
    import jax
    import numpy as np
    from pathwaysutils.elastic.manager import Manager

    manager = Manager()
    killed: list[float] = []
    resumed: list[float] = []
    saved: dict[str, Any] = _state()

    @manager.elastic_retry(minimum_slice_count=minimum)  # type: ignore[untyped-decorator]
    def train() -> None:
        devices = [
            device for index in sorted(manager.active_slice_indices) for device in manager.slice_to_devices[index]
        ]
        mesh = jax.sharding.Mesh(np.array(devices), ("chip",))
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("chip"))
        state = jax.device_put(saved, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
        step = jax.jit(_step, donate_argnums=0)
        for number in range(_STEPS_BEFORE + 10):
            if number == _STEPS_BEFORE and not killed:
                killed.append(kill())
            state, metrics = step(state, jax.device_put(np.ones((24, 256), np.float32), rows))
            jax.block_until_ready(metrics)
            if killed and not resumed and number == 0:
                resumed.append(time.time())

    train()
    return resumed[0] - killed[0]


def _snapshots() -> dict[str, float]:
    import jax
    import numpy as np

    from pathways_jupyter.elastic import Manager, train_loop
    from pathways_jupyter.elastic.loop import default_mesh
    from pathways_jupyter.elastic.record import Record

    side = 2500
    manager = Manager()
    mesh = default_mesh([manager.slice_to_devices[index] for index in sorted(manager.all_slice_indices)])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "chip"))

    def step(state: Any, batch: Any) -> Any:
        def loss(layers: Any) -> Any:
            x = batch
            for each in layers:
                x = jax.nn.relu(x @ each)
            return (x**2).mean()

        value, slopes = jax.value_and_grad(loss)(state)
        return jax.tree.map(lambda each, slope: each - 0.01 * slope, state, slopes), {"loss": value}

    def seconds(every: int) -> float:
        layers = [np.full((side, side), 1e-3, np.float32) for _ in range(4)]
        state = [jax.device_put(each, sharding) for each in layers]
        record = Record()
        batches = itertools.repeat(np.ones((96, side), np.float32))
        train_loop(step, state, batches, steps=21, snapshot_every=every, manager=manager, record=record)
        times = [note.at for note in record.steps]
        # The whole span, because a snapshot slows down the steps after it; the first step compiles.
        return 1000 * (times[-1] - times[10]) / (len(times) - 11)

    taken: dict[str, list[float]] = {"without": [], "with": []}
    began = time.monotonic()
    while not taken["with"] or time.monotonic() - began < _SNAPSHOTS_SECONDS:
        taken["without"].append(seconds(1_000_000))
        taken["with"].append(seconds(10))
    return {name: median(values) for name, values in taken.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
