"""Copies of the training state that survive the loss of a slice, of the proxy, or of this process.

Three places can hold them. *On the hosts*: each array is copied into its devices' host memory, with its sharding; a
copy costs no transfer, and if the state is replicated over slices, each slice's copy protects the others. *In the
notebook*: each array is read into this process's memory; that also survives the loss of the proxy, and serves states
that are sharded over slices, at the cost of a transfer. *In a directory*: written by Orbax, for another process. In
all cases training continues while the copy is made, and a snapshot counts only when all of it has arrived.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Container, Iterator
from typing import Any, Literal, get_args

import psutil

from pathways_jupyter.elastic import reshard
from pathways_jupyter.elastic.batches import Batches
from pathways_jupyter.elastic.checkpoints import Checkpoints
from pathways_jupyter.elastic.errors import (
    ArgumentError,
    ElasticRuntimeError,
    check_choice,
    check_whole,
    is_proxy_gone,
    is_slice_down,
)
from pathways_jupyter.elastic.goodput import SnapshotCost
from pathways_jupyter.elastic.reshard import Form
from pathways_jupyter.elastic.snapshot import Snapshot, copied, on_hosts
from pathways_jupyter.saved import on_devices

Tier = Literal["auto", "hosts", "notebook"]
_SHARE = 0.5
"""Share of this machine's available memory that snapshots in the notebook may take."""

logger = logging.getLogger(__name__)


class Snapshots:
    """The last snapshots of one training run.

    At most one is being copied at a time, and one more into the notebook or the directory: a run that takes them
    faster waits.

    Args:
      keep: How many whole snapshots to keep; an older one is dropped when a newer one is whole.
      where: ``hosts``, ``notebook``, or ``auto``: on the hosts if another slice has a copy of every piece, and every
        now and then in the notebook too, unless there is a `path`.
      limit_bytes: Most bytes that all snapshots may take in the notebook; default: half of the available memory.
      path: A local directory or ``gs://BUCKET/DIRECTORY``, where snapshots are written too; a run that begins with a
        directory that has some resumes from the newest.
      outside_every: Of how many snapshots one is kept outside of the hosts too, so that the run survives the loss of
        its proxy: in `path`, or without one, with ``auto``, in the notebook; 0 for none in the notebook.

    Attributes:
      path: Where snapshots are written; None if they are not.
      notes: What a user should know about writing and reading there; the reader removes them.
      settled: The number of steps that are known to be complete. A snapshot may be whole before the last step before it
        has been reported; going back to that one would leave the step's metrics out.
      batches: The data of the run that these are the snapshots of; a run that resumes goes on with them.

    Raises:
      ConfigError: An argument cannot be used, or Orbax is not installed, which `path` needs, or gcsfs, which a bucket
        needs.
      ElasticRuntimeError: The bucket cannot be read.
      SessionError: It is the embedded cluster's, and this process is not connected to that.
    """

    def __init__(
        self,
        *,
        keep: int = 2,
        where: Tier = "auto",
        limit_bytes: int | None = None,
        path: str | None = None,
        outside_every: int = 10,
    ) -> None:
        check_whole("keep", keep, at_least=1)
        check_choice("where", where, get_args(Tier))
        if limit_bytes is not None:
            check_whole("limit_bytes", limit_bytes, at_least=0)
        check_whole("outside_every", outside_every, at_least=0 if path is None else 1)
        self.keep = keep
        self.where = where
        self.limit_bytes = limit_bytes
        self.outside_every = outside_every
        self.settled: float = math.inf
        self.batches: Batches | None = None
        self._run = threading.Lock()
        self.path = path
        self._checkpoints = Checkpoints(path, keep=keep) if path is not None else None
        self.notes: deque[str] = self._checkpoints.notes if self._checkpoints is not None else deque()
        self._whole: list[Snapshot] = []
        self._taken = 0
        self._last: Snapshot | None = None
        self._last_outside: Snapshot | None = None
        self._copies_to_notebook = where == "auto" and path is None and outside_every > 0
        self._proxies = 0
        self._lock = threading.Lock()
        on_devices.copies.add(self)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Be the snapshots of one run in the block: two would take each other's batches, and resume from each other.

        Raises:
          ArgumentError: Another run has them.
        """
        if not self._run.acquire(blocking=False):
            raise ArgumentError(
                "snapshots cannot be used: a run that goes on has these snapshots, perhaps on another thread.",
                hint="Wait until it has ended, or give this run snapshots of its own.",
            )
        try:
            yield
        finally:
            self._run.release()

    def tier_of(self, state: Any) -> Tier:
        """Return where snapshots of `state` are held: ``hosts`` or ``notebook``."""
        if self.where != "auto":
            return self.where
        return "hosts" if reshard.spare_copies(state) > 0 and on_hosts(state) else "notebook"

    def check(self, state: Any) -> None:
        """Check that there is memory in the notebook for snapshots of `state`.

        Raises:
          ElasticRuntimeError: There is not enough.
        """
        size = Form.of(state)[0].nbytes
        limit = self.limit_bytes
        if limit is None:
            limit = int(_SHARE * psutil.virtual_memory().available)
        if self.tier_of(state) == "hosts":
            # A copy in the making, and the one before.
            if self._copies_to_notebook and 2 * size > limit:
                self._copies_to_notebook = False
                logger.warning(
                    "Snapshots are on the hosts only: two in the notebook would need %.2f GB, and may take %.2f GB. "
                    "The run will not survive the loss of its proxy.",
                    *(2 * size / 1e9, limit / 1e9),
                )
            return
        # One more than is kept, because a new one is complete before the oldest is dropped.
        needed = (self.keep + 1) * size
        if needed > limit:
            raise ElasticRuntimeError(
                f"Snapshots need {needed / 1e9:.2f} GB of memory in this process ({self.keep} kept and one in the "
                f"making, {size / 1e9:.2f} GB each), but may take {limit / 1e9:.2f} GB.",
                hint="Keep fewer, raise limit_bytes, or replicate the state over slices: then the hosts hold them.",
            )

    def resume(self, state: Any) -> Snapshot | None:
        """Return the snapshot to begin with, here or in the directory; None if there is none.

        Args:
          state: A state of the same form: its tree, shapes and partitions.

        Raises:
          ElasticRuntimeError: It is of another state.
        """
        if self._checkpoints is not None and not self._whole and (steps := self._checkpoints.steps()):
            form, newest = Form.of(state)[0], steps[-1]
            self._checkpoints.require(newest, form)
            stored = Snapshot(newest, form, self._checkpoints.extra(newest), "directory", checkpoints=self._checkpoints)
            stored.ready.set()
            stored.finished.set()
            with self._lock:
                self._whole, self.settled = [stored], newest
        latest = self.latest()
        if latest is not None and (differs := latest.form.difference(state)):
            raise ElasticRuntimeError(
                f"The snapshots are of another state: {differs}.",
                hint="Give the state that the run began with; or snapshots=elastic.Snapshots(), to begin anew.",
            )
        return latest

    def take(self, step: int, state: Any, extra: Any = None, *, everywhere: bool = False) -> Snapshot:
        """Start to copy `state`, as it is before step number `step`, and return at once.

        The arrays may be donated to the next step: the copy is enqueued before it.

        Args:
          everywhere: Into the notebook and the directory too, if they get copies at all.
        """
        form, plain = Form.of(state)
        tier = self.tier_of(plain)
        number, self._taken = self._taken, self._taken + 1
        is_due = everywhere or (self.outside_every > 0 and number % self.outside_every == 0)
        notebook = tier != "hosts" or (self._copies_to_notebook and is_due)
        save = self._checkpoints is not None and is_due
        # Bounds the memory, and the number of threads.
        if self._last is not None:
            self._last.wait()
        if (notebook or save) and self._last_outside is not None:
            self._last_outside.wait(everywhere=True)
        # A copy, because the position moves on while this one is kept.
        snapshot = Snapshot(step, form, copy.deepcopy(extra), tier, cost=SnapshotCost(step, form.nbytes))
        with snapshot.cost.waiting():
            # Copied also for the notebook, because the arrays are gone when the next step has donated them.
            copies = copied(plain)
        threading.Thread(
            target=self._finish,
            args=(snapshot, copies, self._proxies),
            kwargs={"notebook": notebook, "save": save},
            name=f"elastic-snapshot-{step}",
            daemon=True,
        ).start()
        # Not before: an Interrupt may come in between, and then nothing would ever be ready.
        self._last = snapshot
        if notebook or save:
            self._last_outside = snapshot
        return snapshot

    def wait(self) -> None:
        """Wait until all copies that are being made are complete."""
        for each in (self._last, self._last_outside):
            if each is not None:
                each.wait(everywhere=True)

    def candidates(self) -> list[Snapshot]:
        """Return the whole snapshots: newest first, but last those whose steps are not known to be complete."""
        with self._lock:
            return sorted(self._whole, key=lambda each: (each.step > self.settled, -each.step))

    def latest(self) -> Snapshot | None:
        """Return the newest whole snapshot; None if there is none."""
        return next(iter(self.candidates()), None)

    def oldest(self) -> Snapshot | None:
        """Return the oldest snapshot that is still kept; None if there is none."""
        with self._lock:
            return self._whole[0] if self._whole else None

    def drop(self, snapshot: Snapshot) -> None:
        """Forget a snapshot that cannot be read any more; no-op if it is forgotten already."""
        with self._lock:
            self._whole = [each for each in self._whole if each is not snapshot]

    def forget_hosts(self) -> None:
        """Forget all copies on the hosts, because the proxy that they were made through is gone."""
        with self._lock:
            self._proxies += 1
            for each in self._whole:
                each.pieces = None
            self._whole = [each for each in self._whole if each.outlives_proxy]

    def spare(self, lost: Container[int]) -> Iterator[Any]:
        """Yield the arrays on the hosts that are copies of others, which are none of the `lost`, by their ids."""
        with self._lock:
            leaves = [leaf for each in self._whole for leaf in each.pieces or ()]
        for leaf in leaves:
            if isinstance(leaf, reshard.Pieces):
                yield from leaf.spare(lost)

    def _finish(self, snapshot: Snapshot, copies: list[Any], proxy: int, *, notebook: bool, save: bool) -> None:
        """Wait until the copies are complete, and keep them; on a thread of its own."""
        import jax
        import numpy as np

        step, cost, began = snapshot.step, snapshot.cost, time.monotonic()
        try:
            # Taken apart while all of it is there.
            pieces = [reshard.Pieces.of(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in copies]
            jax.block_until_ready(copies)
            if snapshot.tier == "hosts":
                self._keep(snapshot, proxy, pieces=pieces)
            if notebook:
                self._keep(snapshot, proxy, arrays=[np.asarray(leaf) for leaf in copies])
            cost.copied = time.monotonic() - began
            if save and self._checkpoints is not None:
                try:
                    cost.writer = self._checkpoints.write(step, copies, snapshot.extra)
                except Exception as error:
                    reason = str(error).partition("\n")[0]
                    said = f"The snapshot before step {step} was not written: {reason}"
                    logger.warning(said)
                    self.notes.append(said)
                    hint = "Check that this account may write there, and that there is room."
                    # A loss stays what it is, because a run recovers from it.
                    is_loss = is_slice_down(error) or is_proxy_gone(error)
                    snapshot.unwritten = error if is_loss else ElasticRuntimeError(said, hint=hint)
                else:
                    if cost.writer is not None:
                        cost.written = time.monotonic() - began - cost.copied
                    self._keep(snapshot, proxy, checkpoints=self._checkpoints)
        except Exception as error:
            # A slice was lost while it was copied. The earlier snapshots stay.
            logger.info("the snapshot before step %d was not completed: %s", step, error)
            if not snapshot.ready.is_set():
                snapshot.error = error
        finally:
            # Whatever has failed: training waits for them.
            snapshot.ready.set()
            snapshot.finished.set()

    def _keep(self, snapshot: Snapshot, proxy: int, **copies: Any) -> None:
        """Add a complete copy of `snapshot`, one of its attributes, and drop what is older than is kept."""
        with self._lock:
            # They were still being made when forget_hosts() was called, which could not drop them.
            if proxy != self._proxies and "pieces" in copies:
                raise ElasticRuntimeError("The proxy was lost just now, and the copies on the hosts with it.")
            for attribute, copied in copies.items():
                setattr(snapshot, attribute, copied)
            # Sorted, because snapshots may finish out of order; without an earlier one of the same step.
            others = [each for each in self._whole if each.step != snapshot.step]
            for earlier in self._whole:
                if earlier.step == snapshot.step:
                    # The same state, on another mesh perhaps: its copies elsewhere may be the only ones that last.
                    snapshot.arrays = earlier.arrays if snapshot.arrays is None else snapshot.arrays
                    snapshot.checkpoints = earlier.checkpoints if snapshot.checkpoints is None else snapshot.checkpoints
            self._whole = _chosen(sorted([*others, snapshot], key=lambda each: each.step), self.keep)
        # Only now that it is among the whole ones: what waits for it may need it at once.
        snapshot.ready.set()


def _chosen(snapshots: list[Snapshot], keep: int) -> list[Snapshot]:
    """Return the snapshots to keep: the last ones, and the last one that does not depend on the proxy."""
    recent = snapshots[-keep:]
    lasting = next((each for each in reversed(snapshots) if each.outlives_proxy), None)
    on_hosts = any(each.pieces is not None for each in recent)
    for each in snapshots:
        if on_hosts and each is not lasting and each.pieces is not None:
            # One copy in the notebook is enough where the hosts have the others.
            each.arrays = None
        if on_hosts and each is lasting and each not in recent:
            each.pieces = None
    return recent if lasting is None or lasting in recent else [lasting, *recent]
