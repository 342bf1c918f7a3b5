"""One run of the training loop: its steps, and what it does when a slice is lost or comes back.

It dispatches one step ahead of the one it waits for, so that the devices never idle. An error of a lost slice
therefore shows up one step late; the state is then restored from the newest snapshot whose pieces survive, on a mesh of
the remaining slices, and the steps since are repeated with the same batches. At a step boundary at which more slices
can be used, the state moves to the larger mesh directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import count
from pathways_jupyter.elastic import reshard
from pathways_jupyter.elastic.batches import Batches
from pathways_jupyter.elastic.compiled import CompiledSteps
from pathways_jupyter.elastic.errors import ElasticRuntimeError, ProxyLostError
from pathways_jupyter.elastic.goodput import Goodput, Spent
from pathways_jupyter.elastic.manager import Manager
from pathways_jupyter.elastic.record import Kind, Record, listed
from pathways_jupyter.elastic.recovery import Recovery, Restored
from pathways_jupyter.elastic.run_end import RunEnd
from pathways_jupyter.elastic.snapshot import Snapshot
from pathways_jupyter.elastic.snapshots import Snapshots

if TYPE_CHECKING:
    import jax

MakeMesh = Callable[[Sequence[Sequence["jax.Device"]]], "jax.sharding.Mesh"]
BatchRule = Literal["keep", "scale"]


@dataclass(frozen=True)
class Result:
    """Result of a run.

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
    goodput: Goodput
    record: Record

    def __repr__(self) -> str:
        last = self.metrics[max(self.metrics)] if self.metrics else {}
        values = "".join(f", {name} {value:.6g}" for name, value in last.items())
        return f"<Result of {count(self.step, 'step')}{values}>"


@dataclass
class TrainingRun:
    """One call of :func:`~pathways_jupyter.elastic.loop.train_loop`.

    Attributes:
      steps: How many steps to do; lowered when the data end.
      next_step: The number of the step to dispatch next.
      state: The newest state, and `mesh` what it is on; there once the run has begun.
      confirmed: The number of steps that are known to be complete.
      in_flight: A step that was dispatched and is not known to be complete: its number, metrics and slices.
      snapshot: The snapshot that was taken last; there once the run has begun.
      resuming: Whether a step after a restore is awaited.
      moved: Whether the state is not what the last step returned, but was put on the mesh since.
      divided: Whether the first batch was checked.
      is_idle: Whether the snapshots had all of its steps when it began, so that nothing is left to do or to write.
    """

    batches: Batches
    mesh_for: MakeMesh
    rule: BatchRule
    snapshot_every: int
    minimum: int
    snapshots: Snapshots
    manager: Manager
    precompile: bool
    record: Record
    timeout: float | None
    compiled: CompiledSteps
    steps: int
    state: Any = field(init=False)
    mesh: jax.sharding.Mesh = field(init=False)
    snapshot: Snapshot = field(init=False)
    next_step: int = 0
    confirmed: int = 0
    in_flight: tuple[int, Any, int] | None = None
    resuming: bool = False
    moved: bool = True
    divided: bool = False
    is_idle: bool = False

    def __post_init__(self) -> None:
        self._goodput = self.record.goodput
        self._end = RunEnd(self.record)
        self.recovery = Recovery(
            self.manager, self.snapshots, self.record, self._mesh, self._needed, self.timeout, self.compiled.clear
        )

    def train(self, state: Any) -> Result:
        """Train from `state`, or from the newest snapshot; see :func:`~pathways_jupyter.elastic.loop.train_loop`."""
        # A manager of the user's may be watching already, and then goes on when this run has ended.
        was_watching = self.manager.health.is_watching
        self.manager.health.listeners.append(self.record.slice_changed)
        self._end.offer()
        try:
            self.manager.start_monitoring()
            self._begin(state)
            self._goodput.begin_steps()
            while self.confirmed < self.steps:
                try:
                    if self._end.is_asked_for:
                        self._leave()
                    self._advance()
                except Exception as error:
                    if not self.recovery.handles(error):
                        raise
                    # Whatever became of it, it is repeated.
                    self.in_flight = None
                    self._goodput.waste()
                    self._resume(self.recovery.after(error, done=self.confirmed))
            self._finish()
        finally:
            if not was_watching:
                self.manager.health.close()
            self.manager.health.listeners.remove(self.record.slice_changed)
            self._end.withdraw()
        return Result(self.state, self.confirmed, self.record.metrics, self._goodput, self.record)

    def _leave(self) -> None:
        """End after the present step, with a snapshot of it."""
        if self.in_flight is not None:
            self._confirm(*self.in_flight)
        snapshot = self._snapshot()
        snapshot.wait()
        if snapshot.error is not None:
            raise snapshot.error
        # Of this proxy, and its thread may keep this run a little longer.
        self.state = self.in_flight = None
        self.compiled.clear()
        raise ElasticRuntimeError(
            f"The run has ended before step {self.next_step}, so that its session can be suspended.",
            hint=advice("Call train_loop again with the same snapshots=, after {resume} if it is suspended."),
        )

    def _begin(self, state: Any) -> None:
        """Put the first state, or the newest snapshot, on the active slices."""
        import jax

        if self.snapshots.resume(state) is not None:
            session = self.manager.session
            # By an earlier call, if it was this process's.
            done = int(self.snapshots.settled) if math.isfinite(self.snapshots.settled) else 0
            try:
                if session is not None and not session.has_devices:
                    # An Interrupt may have come before there was a new one.
                    raise ProxyLostError("The proxy is gone.")
                restored = self.recovery.restore(done=done)
            except RuntimeError as error:
                if not self.recovery.handles(error):
                    raise
                restored = self.recovery.after(error, done=done)
            if (step := restored.snapshot.step) >= self.steps:
                said = f"The snapshots are at step {step} already; {self.steps} are wanted: nothing to do."
                self.record.add(Kind.NOTE, said, step=step, loud=True)
                if self.snapshots.path is None or restored.snapshot.checkpoints is not None:
                    # Without the data, which may have to be drawn and dropped up to there. They are needed only where
                    # this state is still to be written, with the position in them.
                    self.is_idle = True
                    self._put(restored)
                    return
            self._resume(restored)
            if restored.snapshot.tier == "directory":
                # Of another process; the memory for those of this one was checked when it began.
                self.snapshots.check(self.state)
            return
        while True:
            active = self.manager.active_slice_indices
            try:
                if len(active) < self._needed(len(active)):
                    self.recovery.pause(done=0)
                    continue
                self.mesh = self._mesh(active)
                shardings = reshard.shardings_on(state, self.mesh)
                # Without aliases: the steps donate their state, and the caller keeps this one.
                self.state = jax.device_put(reshard.moved(state, shardings, usable=active), shardings, may_alias=False)
                self.snapshots.check(self.state)
                self.snapshots.settled = 0
                # So that there is always one to go back to.
                with self._goodput.during(Spent.CHECKPOINT_SAVE):
                    self._snapshot(everywhere=True).wait(everywhere=True)
                self._report()
                if failure := self.snapshot.error or self.snapshot.unwritten:
                    raise failure
                return
            except RuntimeError as error:
                if not self.recovery.proxy_is_gone(error):
                    reshard.require_values(state, error)
                if not self.recovery.handles(error):
                    raise
                self.recovery.regain(error, done=0)

    def _advance(self) -> None:
        """Dispatch one step, and wait for the one before."""
        import jax

        active = self.manager.active_slice_indices
        if lost := active - self.manager.health.up:
            # The event came before any array failed: do not start a step that cannot succeed.
            raise jax.errors.JaxRuntimeError(f"DATA_LOSS: {listed(lost)} down")
        # After a loss a step runs on what is left first, so that a slice that fails again and again stops no progress.
        more = self.manager.available_inactive_slices
        if more and self._divides(len(active | more)) and not (self.resuming and self.in_flight is None):
            self._grow()
        before, self.in_flight = self.in_flight, None
        # The next one first, so that the devices have work while this thread waits for the one before.
        if self.next_step < self.steps:
            self._dispatch()
        if before is not None:
            self._confirm(*before)
        # Of the state that the step in flight returns. The copy is enqueued before the next step, which donates that
        # state.
        if self.next_step % self.snapshot_every == 0 and self.in_flight is not None:
            self._snapshot()

    def _dispatch(self) -> None:
        """Start the next step; without a batch there is none."""
        import jax

        active, total = self.manager.active_slice_count, self.manager.total_slice_count
        with self._goodput.during(Spent.DATA_LOADING):
            try:
                # With all slices at least, it never has to be divided.
                divided = total if self.rule == "scale" and self.minimum < total else 1
                batch = self.batches.next(1.0 if self.rule == "keep" else active / total, slices=divided)
            except StopIteration:
                self.steps = self.record.total_steps = self.next_step
                return
            if not self.divided:
                self._require_divisible()
            placed = jax.device_put(batch, self.compiled.batch_sharding(self.mesh))
        if not self.compiled.has(self.mesh, placed):
            with self._goodput.during(Spent.PROGRAM_STARTUP):
                self.compiled.on(self.mesh, self.state, placed)
            if self.precompile:
                self._compile_ahead(placed)
        self.state, metrics = self.compiled.run(self.mesh, self.state, placed, moved=self.moved)
        self.moved = False
        self.in_flight = (self.next_step, metrics, active)
        self.next_step += 1

    def _compile_ahead(self, batch: Any) -> None:
        """Compile the step for each mesh with one slice less."""
        import jax

        active = self.manager.active_slice_indices

        def failed(error: Exception) -> None:
            # It will be compiled when it is needed, and an error that stays is raised there.
            reason = str(error).partition("\n")[0]
            self.record.add(Kind.NOTE, f"Compiling ahead failed: {reason}")

        def rows(leaf: Any) -> jax.ShapeDtypeStruct:
            count = leaf.shape[0] * (len(active) - 1) // len(active) if self.rule == "scale" else leaf.shape[0]
            return jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype)

        if self._needed(len(active) - 1) >= len(active):
            return
        try:
            meshes = [(self._mesh(active - {index}), jax.tree.map(rows, batch)) for index in sorted(active)]
        except Exception as error:
            failed(error)
        else:
            self.compiled.ahead(meshes, self.state, failed)

    def _confirm(self, number: int, metrics: Any, slices: int) -> None:
        """Wait for a step's metrics; an error of the step is raised here."""
        import jax

        values = {name: float(value) for name, value in jax.device_get(metrics).items()}
        if self.snapshot.step <= number and self.snapshot.tier == "hosts" and not self.snapshot.ready.is_set():
            # Enqueued before this step, it is about to be whole. So no more steps are lost than between two snapshots.
            with self._goodput.during(Spent.CHECKPOINT_SAVE):
                self.snapshot.wait()
        self._goodput.step(number)
        self.confirmed = number + 1
        self.snapshots.settled = max(self.snapshots.settled, self.confirmed)
        self.record.step(number, values, slices=slices, losses=self.manager.elastic_down_event_count)
        if self.resuming:
            self.resuming = False
            active = tuple(sorted(self.manager.active_slice_indices))
            said = f"Step {number} is complete on {listed(active)}."
            self.record.add(Kind.RESUMED, said, step=number + 1, slices=active)

    def _snapshot(self, *, everywhere: bool = False) -> Snapshot:
        self._report()
        with self._goodput.during(Spent.CHECKPOINT_SAVE):
            position = self.batches.position()
            self.snapshot = self.snapshots.take(self.next_step, self.state, position, everywhere=everywhere)
        self._goodput.snapshots.append(self.snapshot.cost)
        # No restore goes further back.
        if (oldest := self.snapshots.oldest()) is not None:
            self.batches.forget(oldest.extra)
        return self.snapshot

    def _report(self) -> None:
        """Make events of what was found when snapshots were written and read."""
        while self.snapshots.notes:
            self.record.add(Kind.NOTE, self.snapshots.notes.popleft(), step=self.confirmed)

    def _resume(self, restored: Restored) -> None:
        """Go on from a snapshot."""
        self.batches.restore(restored.snapshot.extra)
        lost = {device for index in restored.lost for device in self.manager.slice_to_devices[index]}
        self.batches.require_present(lost)
        self._put(restored)
        self.resuming = True

    def _put(self, restored: Restored) -> None:
        """Make a snapshot's state the run's."""
        self.state, self.mesh, self.moved = restored.state, restored.mesh, True
        self.snapshot = restored.snapshot
        self.next_step = self.confirmed = self.record.done = restored.snapshot.step
        self._report()

    def _grow(self) -> None:
        """Move the state to a mesh with the slices that have become available."""
        more = self.manager.available_inactive_slices
        # First: its error would be about the slices that have been in use until now.
        if self.in_flight is not None:
            pending, self.in_flight = self.in_flight, None
            self._confirm(*pending)
        before = self.manager.active_slice_indices
        with self._goodput.during(Spent.SCALE_UP):
            # From here on an error is handled like any loss: the newest snapshot is restored.
            self.manager.active_slice_indices = before | more
            self.mesh = self._mesh(self.manager.active_slice_indices)
            self.state = reshard.moved(self.state, reshard.shardings_on(self.state, self.mesh), usable=before)
            self.moved = True
        active = tuple(sorted(self.manager.active_slice_indices))
        said = f"Training continues on {listed(active)}."
        self.record.add(Kind.GROWN, said, step=self.next_step, slices=active)
        # Protects the larger mesh: the earlier snapshots have no pieces on the new slices.
        self._snapshot()

    def _finish(self) -> None:
        """Write the last state, if snapshots are written, and wait for those that are being made."""
        with self._goodput.during(Spent.CHECKPOINT_SAVE):
            if self.snapshots.path is not None and not self.is_idle:
                self._snapshot(everywhere=True)
            # So that none is cut short by the end of the process.
            self.snapshots.wait()
            self._report()

    def _needed(self, number: int) -> int:
        """Return how many slices a step needs where there are `number`: more where these cannot divide a batch."""
        total = self.manager.total_slice_count
        return next(filter(self._divides, range(max(number, self.minimum), total)), max(total, self.minimum))

    def _divides(self, number: int) -> bool:
        """Return whether the chips of so many slices can divide a batch among them; True before the first one."""
        rows, total = self.batches.rows, self.manager.total_slice_count
        return (rows if self.rule == "keep" else rows * number // total) % self._parts(number) == 0

    def _parts(self, number: int) -> int:
        """Return into how many parts a batch is divided on so many slices."""
        devices = [devices for _, devices in sorted(self.manager.slice_to_devices.items())]
        try:
            return self.compiled.parts(self.mesh_for(devices[:number]))
        except Exception:
            # Raised when that mesh is needed.
            return 1

    def _require_divisible(self) -> None:
        """Check the first batch, and note with how many slices the run is going to pause."""
        self.divided, active = True, self.manager.active_slice_count
        rows, total = self.batches.rows, self.manager.total_slice_count
        if not self._divides(active):
            parts = self._parts(active)
            multiple = parts if self.rule == "keep" else parts * total // active
            raise ElasticRuntimeError(
                f"A batch of {rows} rows cannot be divided into {parts} parts, for the chips of "
                f"{count(active, 'slice')}.",
                hint=f"Give train_loop batches whose rows are a multiple of {multiple}.",
            )
        if misfits := [str(each) for each in range(self.minimum, total + 1) if not self._divides(each)]:
            said = f"The run pauses with {' or '.join(misfits)} slices: they cannot divide a batch of {rows} rows."
            self.record.add(Kind.NOTE, said)

    def _mesh(self, slices: frozenset[int]) -> jax.sharding.Mesh:
        return self.mesh_for([self.manager.slice_to_devices[index] for index in sorted(slices)])
