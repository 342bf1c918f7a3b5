"""A training loop that goes on when slices go down, and grows again when they are back.

The loop dispatches one step ahead of the one it waits for, so that the devices never idle. An error of a lost slice
therefore shows up one step late; the state is then restored from the newest snapshot whose pieces survive, on a mesh of
the remaining slices, and the steps since are repeated with the same batches. At a step boundary at which more slices
can be used, the state moves to the larger mesh directly.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pathways_jupyter.elastic import reshard
from pathways_jupyter.elastic.batches import Batches
from pathways_jupyter.elastic.errors import ElasticRuntimeError, is_proxy_gone, is_slice_down
from pathways_jupyter.elastic.goodput import Goodput, Spent
from pathways_jupyter.elastic.manager import Manager
from pathways_jupyter.elastic.record import Kind, Record
from pathways_jupyter.elastic.snapshot import Snapshots

if TYPE_CHECKING:
    import jax

Step = Callable[[Any, Any], tuple[Any, Mapping[str, Any]]]
MakeMesh = Callable[[Sequence[Sequence["jax.Device"]]], "jax.sharding.Mesh"]
BatchRule = Literal["keep", "scale"]

logger = logging.getLogger(__name__)

_ATTEMPTS = 5
"""Attempts to place one state while slices are being lost."""
_MOMENT_SECONDS = 0.1


@dataclass(frozen=True)
class Result:
    """What came of a run.

    Attributes:
      state: The last state, on the slices that are up.
      step: The number of steps done.
      metrics: Each step's metrics, as floats.
      goodput: Where the time went.
      record: Everything that happened.
    """

    state: Any
    step: int
    metrics: Mapping[int, Mapping[str, float]]
    goodput: Goodput = field(repr=False)
    record: Record = field(repr=False)


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
    """Train for `steps` steps, through losses and recoveries of slices.

    Args:
      step: A pure function ``(state, batch) -> (state, metrics)``; it is compiled, and its state is donated.
      state: A pytree of arrays; each keeps its partition (its sharding's ``spec``) on every mesh.
      data: Global batches: pytrees of arrays with the batch as their first axis. An iterator with ``get_state`` and
        ``set_state`` is set back after a loss; of any other, the batches since the last snapshots are kept.
      mesh_for: Returns the mesh for a list of slices, each a list of devices; default: axes ``slice`` and ``chip``.
      batch_spec: How a batch is partitioned; default: its first axis over all axes of the mesh.
      batch: On fewer slices ``keep`` the global batch, or ``scale`` it with the number of slices.
      snapshot_every: Steps between snapshots.
      minimum_slices: With fewer, training pauses until they are back.
      snapshots: Where snapshots are kept; if it has one already, training resumes from it.
      manager: The manager of the slices.
      precompile: Compile the step for every mesh with one slice less, on another thread.
      record: Where events and metrics go.
      timeout: Longest pause for slices, in seconds; default: without end.

    Raises:
      ElasticRuntimeError: The state is too large for its snapshots (before anything has started), no snapshot
        survived a loss, or the proxy is gone.
      TimeoutError: A pause took longer than `timeout`.
      Exception: An error of `step`, `data` or `mesh_for`.
    """
    run = _Run(
        step=step,
        batches=Batches(data),
        mesh_for=mesh_for or default_mesh,
        batch_spec=batch_spec,
        rule=batch,
        snapshot_every=snapshot_every,
        minimum=minimum_slices,
        snapshots=snapshots or Snapshots(),
        manager=manager or Manager(),
        precompile=precompile,
        record=record or Record(),
        timeout=timeout,
    )
    return run.train(state, steps)


def default_mesh(slices: Sequence[Sequence[jax.Device]]) -> jax.sharding.Mesh:
    """Return a mesh with the axes ``slice`` and ``chip``."""
    import jax
    import numpy as np

    return jax.sharding.Mesh(np.array([list(devices) for devices in slices]), ("slice", "chip"))


@dataclass
class _Run:
    """One call of :func:`train_loop`.

    Attributes:
      next_step: The number of the step to dispatch next.
      confirmed: The number of steps that are known to be complete.
      in_flight: A step that was dispatched and is not known to be complete: its number, metrics and time.
      compiled: Compiled steps by the slices they run on and the share of the batch.
    """

    step: Step
    batches: Batches
    mesh_for: MakeMesh
    batch_spec: Any
    rule: BatchRule
    snapshot_every: int
    minimum: int
    snapshots: Snapshots
    manager: Manager
    precompile: bool
    record: Record
    timeout: float | None
    state: Any = None
    mesh: Any = None
    next_step: int = 0
    confirmed: int = 0
    in_flight: tuple[int, Any, int] | None = None
    resuming: bool = False
    compiled: dict[tuple[frozenset[int], float], Any] = field(default_factory=dict)
    compiling: threading.Lock = field(default_factory=threading.Lock)

    def train(self, state: Any, steps: int) -> Result:
        import jax

        self.record.begin(steps=steps, slices=self.manager.total_slice_count, session=self.manager.session)
        self.manager.health.listeners.append(self.record.slice_changed)
        try:
            self.manager.start_monitoring()
            if (earlier := self.snapshots.latest()) is not None:
                self._restore_from_any(earlier.step)
            else:
                self._place(state)
            self.goodput.begin_steps()
            while self.confirmed < steps:
                try:
                    self._advance(steps)
                except jax.errors.JaxRuntimeError as error:
                    self._recover(error)
        finally:
            self.manager.close()
            self.manager.health.listeners.remove(self.record.slice_changed)
            self.record.end()
        return Result(self.state, self.confirmed, self.record.metrics, self.goodput, self.record)

    def _place(self, state: Any) -> None:
        """Put the first state on the active slices, and take a snapshot, so that there is always one to go back to."""
        import jax

        for attempt in range(_ATTEMPTS):
            active = self.manager.active_slice_indices
            self.mesh = self._mesh(active)
            shardings = reshard.shardings_on(state, self.mesh)
            try:
                # Without aliases: the steps donate their state, and the caller keeps this one.
                self.state = jax.device_put(reshard.moved(state, shardings, usable=active), shardings, may_alias=False)
                self.snapshots.check(self.state)
                taken = self._snapshot()
                taken.finished.wait()
                if taken.error is None:
                    return
                raise taken.error
            except jax.errors.JaxRuntimeError as error:
                if not is_slice_down(error) or attempt == _ATTEMPTS - 1:
                    raise
                self._note_loss()

    @property
    def goodput(self) -> Goodput:
        return self.record.goodput

    def _advance(self, steps: int) -> None:
        """Dispatch one step, and wait for the one before."""
        import jax

        active = self.manager.active_slice_indices
        if lost := active - self.manager.health.up:
            # The event came before any array failed: do not start a step that cannot succeed.
            raise jax.errors.JaxRuntimeError(f"DATA_LOSS: slices {sorted(lost)} are down")
        if self.manager.available_inactive_slices:
            self._grow()
        if self.next_step < steps:
            with self.goodput.during(Spent.DATA_LOADING):
                batch = self._placed_batch(self.batches.next(self._share))
            compiled = self._compiled_for(self.manager.active_slice_indices, batch)
            before, number = self.in_flight, self.next_step
            self.state, metrics = compiled(self.state, batch)
            self.in_flight = (number, metrics, self.manager.active_slice_count)
            self.next_step += 1
        else:
            before, self.in_flight = self.in_flight, None
        if before is not None:
            self._confirm(*before)
        if self.next_step % self.snapshot_every == 0 and self.in_flight is not None:
            with self.goodput.during(Spent.CHECKPOINT_SAVE):
                self._snapshot()

    def _confirm(self, number: int, metrics: Any, slices: int) -> None:
        """Wait for a step's metrics; an error of the step is raised here."""
        import jax

        values = {name: float(value) for name, value in jax.device_get(metrics).items()}
        self.goodput.step(number)
        self.confirmed = number + 1
        self.record.step(number, values, slices=slices, losses=self.manager.elastic_down_event_count)
        if self.resuming:
            self.resuming = False
            active = tuple(sorted(self.manager.active_slice_indices))
            self.record.add(
                Kind.RESUMED, f"Step {number} is complete on {_listed(active)}.", step=number + 1, slices=active
            )

    def _snapshot(self) -> Any:
        taken = self.snapshots.take(self.next_step, self.state, self.batches.position())
        if (oldest := self.snapshots.oldest()) is not None:
            self.batches.forget(oldest.extra)
        return taken

    def _recover(self, error: Exception) -> None:
        """Continue on the slices that are left, from the newest snapshot that can be read."""
        if is_proxy_gone(error):
            raise ElasticRuntimeError(
                "The proxy is gone, and all arrays on TPUs with it.",
                hint="%pathways reconnect, then call train_loop again with snapshots that were kept in the notebook.",
            ) from error
        if not is_slice_down(error):
            raise error
        self.in_flight = None
        self.goodput.waste()
        before = self.manager.active_slice_indices
        remaining = self.manager.note_loss()
        lost = tuple(sorted(before - remaining))
        self.record.add(
            Kind.DETECTED,
            f"{_listed(lost)} lost before step {self.next_step} was complete." if lost else f"A step failed: {error}",
            step=self.confirmed,
            slices=tuple(sorted(remaining)),
        )
        with self.goodput.during(Spent.REINITIALIZATION):
            if len(remaining) < self.minimum:
                self._pause()
            self._restore_from_any(self.confirmed)

    def _note_loss(self) -> None:
        """Update the active slices after an error; pause if there are too few, and wait a moment if none is gone."""
        before = self.manager.active_slice_indices
        remaining = self.manager.note_loss()
        if len(remaining) < self.minimum:
            self._pause()
        elif remaining == before:
            # The devices may answer a moment longer than the arrays on them last.
            time.sleep(_MOMENT_SECONDS)

    def _pause(self) -> None:
        self.record.add(
            Kind.WAITING,
            f"Training pauses: {self.manager.active_slice_count} of at least {self.minimum} slices are up.",
            step=self.confirmed,
        )
        with self.goodput.during(Spent.SLICE_DOWN):
            self.manager.active_slice_indices = self.manager.health.wait_for(self.minimum, timeout=self.timeout)

    def _restore_from_any(self, done: int) -> None:
        """Put the newest readable snapshot on the active slices.

        Args:
          done: The number of steps that were complete.
        """
        import jax

        attempt = 0
        while (snapshot := self.snapshots.latest()) is not None:
            attempt += 1
            active = self.manager.active_slice_indices
            try:
                with self.goodput.during(Spent.CHECKPOINT_RESTORE):
                    self.mesh = self._mesh(active)
                    self.state = snapshot.on(self.mesh, usable=active)
            except ElasticRuntimeError as error:
                logger.info("snapshot before step %d: %s", snapshot.step, error)
                # Pieces of it were on lost slices only; an older one has them no more than this one does, unless its
                # mesh was another.
                self.snapshots.drop(snapshot)
                continue
            except jax.errors.JaxRuntimeError as error:
                if not is_slice_down(error):
                    raise
                # Another slice was lost during the restore.
                self._note_loss()
                if attempt % _ATTEMPTS == 0:
                    self.snapshots.drop(snapshot)
                continue
            self.batches.restore(snapshot.extra)
            self.next_step = self.confirmed = snapshot.step
            self.resuming = True
            repeated = done - snapshot.step
            self.record.add(
                Kind.RESTORED,
                f"The state before step {snapshot.step} is on {_listed(tuple(sorted(active)))}; "
                f"{repeated} steps are repeated.",
                step=snapshot.step,
                slices=tuple(sorted(active)),
                repeated=repeated,
            )
            return
        raise ElasticRuntimeError(
            "No snapshot of the state has survived.",
            hint='Keep them in the notebook: Snapshots(where="notebook"), or replicate the state over slices.',
        )

    def _grow(self) -> None:
        """Move the state to a mesh with the slices that have become available."""
        more = self.manager.available_inactive_slices
        if self.in_flight is not None:
            pending, self.in_flight = self.in_flight, None
            self._confirm(*pending)
        before = self.manager.active_slice_indices
        with self.goodput.during(Spent.SCALE_UP):
            # From here on an error is handled like any loss: the newest snapshot is restored.
            self.manager.active_slice_indices = before | more
            self.mesh = self._mesh(self.manager.active_slice_indices)
            self.state = reshard.moved(self.state, reshard.shardings_on(self.state, self.mesh), usable=before)
        active = tuple(sorted(self.manager.active_slice_indices))
        self.record.add(Kind.GROWN, f"Training continues on {_listed(active)}.", step=self.next_step, slices=active)
        # Protects the larger mesh: the earlier snapshots have no pieces on the new slices.
        self._snapshot()

    @property
    def _share(self) -> float:
        if self.rule == "keep":
            return 1.0
        return self.manager.active_slice_count / self.manager.total_slice_count

    def _mesh(self, slices: frozenset[int]) -> jax.sharding.Mesh:
        return self.mesh_for([self.manager.slice_to_devices[index] for index in sorted(slices)])

    def _placed_batch(self, batch: Any) -> Any:
        import jax

        return jax.device_put(batch, self._batch_sharding(self.mesh))

    def _batch_sharding(self, mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
        import jax

        spec = self.batch_spec
        if spec is None:
            spec = jax.sharding.PartitionSpec(tuple(mesh.axis_names))
        return jax.sharding.NamedSharding(mesh, spec)

    def _compiled_for(self, slices: frozenset[int], batch: Any) -> Any:
        key = (slices, self._share)
        if key not in self.compiled:
            with self.goodput.during(Spent.PROGRAM_STARTUP):
                self._compile(key, self.mesh, self.state, batch)
            if self.precompile:
                threading.Thread(
                    target=self._compile_ahead, args=(slices, batch), name="elastic-precompile", daemon=True
                ).start()
        return self.compiled[key]

    def _compile(self, key: tuple[frozenset[int], float], mesh: Any, state: Any, batch: Any) -> None:
        """Compile the step for arrays like `state` and `batch` on `mesh`; no-op if that has been done."""
        import jax

        with self.compiling:
            if key in self.compiled:
                return
            shapes = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(
                    leaf.shape, leaf.dtype, sharding=jax.sharding.NamedSharding(mesh, reshard.spec_of(leaf))
                ),
                state,
            )
            sharding = self._batch_sharding(mesh)
            rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), batch)
            # The new state keeps the old one's shardings, so that every step can be followed by the next.
            kept = jax.tree.map(lambda shape: shape.sharding, shapes)
            jitted = jax.jit(self.step, donate_argnums=0, out_shardings=(kept, None))
            self.compiled[key] = jitted.lower(shapes, rows).compile()

    def _compile_ahead(self, slices: frozenset[int], batch: Any) -> None:
        """Compile the step for each mesh with one slice less."""
        for index in sorted(slices):
            fewer = slices - {index}
            if len(fewer) < max(1, self.minimum) or self.rule == "scale":
                continue
            try:
                self._compile((fewer, self._share), self._mesh(fewer), self.state, batch)
            except Exception as error:
                # It will be compiled when it is needed, and an error that stays is raised there.
                self.record.add(Kind.RETRY, f"Compiling ahead for {_listed(tuple(sorted(fewer)))} failed: {error}")
                return


def _listed(slices: Sequence[int]) -> str:
    numbers = ", ".join(map(str, slices))
    return f"slice {numbers}" if len(slices) == 1 else f"slices {numbers}"
