"""A training loop that goes on when slices go down, and grows again when they are back: its arguments.

:mod:`training_run` is the loop itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from pathways_jupyter.elastic.batches import Batches
from pathways_jupyter.elastic.compiled import CompiledSteps, Step
from pathways_jupyter.elastic.errors import (
    check_callable,
    check_choice,
    check_seconds,
    check_slices,
    check_type,
    check_whole,
)
from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.manager import Manager
from pathways_jupyter.elastic.record import Record
from pathways_jupyter.elastic.run_registry import RUNS
from pathways_jupyter.elastic.snapshots import Snapshots
from pathways_jupyter.elastic.training_run import BatchRule, MakeMesh, Result, TrainingRun
from pathways_jupyter.session.kernel import process

if TYPE_CHECKING:
    import jax


def train_loop(
    step: Step,
    state: Any,
    data: Iterable[Any],
    *,
    steps: int,
    mesh_for: MakeMesh | None = None,
    batch_spec: jax.sharding.PartitionSpec | None = None,
    batch: BatchRule = "keep",
    snapshot_every: int = 10,
    minimum_slices: int = 1,
    snapshots: Snapshots | None = None,
    manager: Manager | None = None,
    precompile: bool = False,
    record: Record | None = None,
    timeout: float | None = None,
) -> Result:
    """Train for `steps` steps, or until the data end, through losses and recoveries of slices and of the proxy.

    Args:
      step: A pure function ``(state, batch) -> (state, metrics)``; it is compiled, and its state is donated.
      state: A pytree of arrays; each keeps its partition (its sharding's ``spec``) on every mesh.
      data: Global batches: pytrees of arrays with the batch as their first axis. An iterator with ``get_state`` and
        ``set_state`` is set back after a loss; of any other, the batches since the last snapshots are kept.
      mesh_for: Returns the mesh for a list of slices, each a list of devices; default: axes ``slice`` and ``chip``.
      batch_spec: How a batch is partitioned; default: its first axis over all axes of the mesh.
      batch: On fewer slices ``keep`` the global batch, or ``scale`` it with the number of slices, of which its rows
        have to be a multiple. Where the chips of the slices cannot divide it, training pauses.
      snapshot_every: Steps between snapshots.
      minimum_slices: With fewer, training pauses until they are back.
      snapshots: Where snapshots are kept; if it has one already, training resumes from it. The same data go on where
        they were; other data without a state are taken to begin with the first batch. If it has all of the steps, its
        state is returned at once, with a warning.
      manager: The manager of the slices.
      precompile: Compile the step for every mesh with one slice less, on another thread.
      record: Where events and metrics go.
      timeout: Longest pause for slices or for a new proxy, in seconds; default: without end, and ten minutes.

    Raises:
      ElasticRuntimeError: The state was lost before, is another one than the snapshots have, or is too large for them
        (before anything has started), the first batch cannot be scaled or divided, no snapshot or batch survived a
        loss, there is no new proxy for a lost one, or the session was disconnected or suspended.
      TimeoutError: A pause took longer than `timeout`.
      ConfigError: An argument cannot be used, a run that goes on has these snapshots, or there are fewer slices in all
        than `minimum_slices`. Nothing was changed.
      Exception: An error of `step`, `data` or `mesh_for`.
    """
    # A wrong argument must not show up hours later, at the first loss.
    check_callable("step", step)
    if not hasattr(data, "__getitem__"):
        # Python iterates over what has it too.
        check_type("data", data, Iterable, example="data=iter(batches)")
    check_whole("steps", steps, at_least=0)
    if mesh_for is not None:
        check_callable("mesh_for", mesh_for)
    check_choice("batch", batch, get_args(BatchRule))
    check_whole("snapshot_every", snapshot_every, at_least=1)
    check_whole("minimum_slices", minimum_slices, at_least=0)
    if timeout is not None:
        check_seconds("timeout", timeout)
    if snapshots is not None:
        check_type("snapshots", snapshots, Snapshots, example="snapshots=elastic.Snapshots()")
    if record is not None:
        check_type("record", record, Record, example="record=elastic.Record()")
    if manager is not None:
        check_type("manager", manager, Manager, example="manager=elastic.Manager()")
        check_slices("minimum_slices", minimum_slices, manager.total_slice_count)
    elif (session := process.session()) is not None and session.record.slices:
        # Of the session's slices, also those that are down, because JAX may have no devices yet.
        check_slices("minimum_slices", minimum_slices, len(session.record.slices))
    snapshots, record = snapshots or Snapshots(), record or Record()
    with snapshots.in_use():
        # They are with the snapshots, because the same data that are given again have been read up to some position.
        if snapshots.batches is None or snapshots.batches.source is not data:
            snapshots.batches = Batches(data)
        # Before the manager, which may wait for JAX's devices: that time is the run's, too.
        RUNS.begin(record, name=getattr(step, "__name__", ""), steps=steps)
        try:
            with record.goodput.during(Spent.TPU_INITIALIZATION):
                manager = manager or Manager()
            # Again: without a manager and a session their number was not known above.
            check_slices("minimum_slices", minimum_slices, manager.total_slice_count)
            RUNS.has_devices(record, manager.total_slice_count, manager.session)
            run = TrainingRun(
                batches=snapshots.batches,
                mesh_for=mesh_for or default_mesh,
                rule=batch,
                snapshot_every=snapshot_every,
                minimum=max(1, minimum_slices),
                snapshots=snapshots,
                manager=manager,
                precompile=precompile,
                record=record,
                timeout=timeout,
                compiled=CompiledSteps(step, batch_spec),
                steps=steps,
            )
            return run.train(state)
        finally:
            RUNS.end(record)


def default_mesh(slices: Sequence[Sequence[jax.Device]]) -> jax.sharding.Mesh:
    """Return a mesh with the axes ``slice`` and ``chip``."""
    import jax
    import numpy as np

    return jax.sharding.Mesh(np.array([list(devices) for devices in slices]), ("slice", "chip"))
