"""Recovery of a training run after an error: find out what was lost, wait if it must, and go back to a snapshot.

A slice may be lost at any moment, also while this is under way, and so may the proxy. So each part may fail with the
same errors as a step, and then all of it begins again with the new error. Errors that are about neither, or that come
again and again though nothing was lost, are raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.elastic.errors import (
    ElasticRuntimeError,
    ProxyLostError,
    is_proxy_gone,
    is_slice_down,
)
from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.manager import Manager
from pathways_jupyter.elastic.record import Kind, Record, listed, lost_words, paused_words
from pathways_jupyter.elastic.snapshot import Snapshot
from pathways_jupyter.elastic.snapshots import Snapshots
from pathways_jupyter.session.verdicts import SessionCommand, ended

if TYPE_CHECKING:
    import jax

_MOST_FAILURES = 10
"""Failures in a row, without a step or a loss between them, after which the error is taken to be the program's own."""
_MOST_FAILURES_ON_HOSTS = 5
"""Failures in a row after which a snapshot on the hosts is not tried again."""
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
_RECONNECT_SECONDS = 600.0
"""Time limit for a new proxy, if the run has none of its own."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Restored:
    """A snapshot whose state is on the active slices; what was on the `lost` ones is gone."""

    snapshot: Snapshot
    state: Any
    mesh: jax.sharding.Mesh
    lost: frozenset[int] = frozenset()


@dataclass
class Recovery:
    """Brings a training run back to a snapshot on the slices that are left.

    From top to bottom: what was lost (:meth:`regain`), a new proxy if that was it, the wait for enough slices
    (:meth:`pause`), and the state of a snapshot on them (:meth:`restore`).

    Attributes:
      mesh_on: Returns the mesh for active slices.
      needed: Returns how many slices a step needs where there are so many; with fewer, wait until they are back.
      timeout: Longest wait, in seconds; None: without end.
      reconnected: Called when a new proxy has replaced the one that was lost.
    """

    manager: Manager
    snapshots: Snapshots
    record: Record
    mesh_on: Callable[[frozenset[int]], jax.sharding.Mesh]
    needed: Callable[[int], int]
    timeout: float | None
    reconnected: Callable[[], None]
    _furthest: int = -1
    _failures: int = 0
    _pauses: Backoff = field(default_factory=lambda: Backoff(_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))

    def handles(self, error: BaseException) -> bool:
        """Return whether `error` is about a lost slice or proxy."""
        return is_slice_down(error) or self.proxy_is_gone(error)

    def proxy_is_gone(self, error: BaseException) -> bool:
        """Return whether `error` is about the proxy, with which all arrays are lost."""
        if isinstance(error, PathwaysError):
            return isinstance(error, ProxyLostError)
        # Arrays of a proxy that was lost may be deleted by now, which raises other errors than a lost connection.
        session = self.manager.session
        is_lost = session is not None and session.state in {SessionState.LOST, SessionState.SUSPENDED}
        # Another thread may have disconnected or reconnected the session.
        is_lost = is_lost or self.manager.has_ended or self.manager.is_replaced
        return is_proxy_gone(error) or (is_lost and isinstance(error, RuntimeError))

    def after(self, error: Exception, *, done: int) -> Restored:
        """Return the newest snapshot that can be read, on the slices that are left.

        Args:
          done: The number of steps that were complete.

        Raises:
          ElasticRuntimeError: No snapshot has survived, or there is no new proxy.
          TimeoutError: A wait took longer than the limit.
          Exception: `error`, if it is about neither slices nor the proxy, or comes again though nothing was lost.
        """
        lost = frozenset[int]()
        with self.record.goodput.during(Spent.REINITIALIZATION):
            while True:
                try:
                    lost |= self.regain(error, done=done)
                    return replace(self.restore(done=done), lost=lost)
                except Exception as another:
                    # The same one again is regain()'s way to give up on it.
                    if not self.handles(another) or another is error:
                        raise
                    error = another

    def regain(self, error: Exception, *, done: int) -> frozenset[int]:
        """Update the active slices after `error`, or get a new proxy; there may be too few slices then.

        Returns:
          The slices that were lost.
        """
        if not self.handles(error):
            raise error
        session = self.manager.session
        if session is not None and (session.is_suspended or self.manager.has_ended):
            answer = ended(session.record) if self.manager.has_ended else session.verdict(SessionCommand.RUN)
            raise ElasticRuntimeError(answer.sentence, hint=self._again()) from error
        # There was progress, so that the failures before it do not count as a row.
        if done > self._furthest:
            self._furthest, self._failures = done, 0
        if self.proxy_is_gone(error):
            self._reconnect(error, done)
            self._failures = 0
            return frozenset()
        before = self.manager.active_slice_indices
        remaining = self.manager.find_loss(error)
        lost = before - remaining
        self.record.add(Kind.DETECTED, lost_words(lost, error), step=done, slices=tuple(sorted(remaining)))
        # A slice that is up again counts as a failure: the error may name it for an array of the program's own, which
        # no recovery brings back.
        self._failures = 0 if lost - self.manager.health.up else self._failures + 1
        if self._failures >= _MOST_FAILURES:
            raise error
        if not lost and len(remaining) >= self.needed(len(remaining)):
            # The devices may answer a moment longer than the arrays on them last.
            if self._failures == 1:
                self._pauses.reset()
            self._pauses.sleep()
        return lost

    def _reconnect(self, error: Exception, done: int) -> None:
        """Replace the proxy; try again until the time is over."""
        import jax

        session = self.manager.session
        self.manager.elastic_down_event_count += 1
        # Before a new proxy is there, whose arrays may have the numbers of theirs.
        self.snapshots.forget_hosts()
        self.record.add(Kind.DETECTED, "The proxy is gone, and all arrays on TPUs with it.", step=done)
        if session is None:
            raise ElasticRuntimeError(
                "The proxy is gone, and all arrays on TPUs with it.",
                hint="Start the program again; with Snapshots(path=...) it resumes.",
            ) from error
        # Before a new proxy is asked for, which would take slices for a run that cannot go on.
        if self.snapshots.latest() is None:
            raise ElasticRuntimeError(
                "The proxy is gone, and there is no snapshot outside of its hosts.",
                hint=advice(
                    'Snapshots(where="notebook") or Snapshots(path=...) outlive a proxy. {reconnect} gets a new one.'
                ),
            ) from error
        limit = _RECONNECT_SECONDS if self.timeout is None else self.timeout
        attempts = Backoff(_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=limit)
        for _ in attempts:
            try:
                with self.record.goodput.during(Spent.TPU_INITIALIZATION):
                    unusable = self.manager.reconnect()
                break
            except (PathwaysError, jax.errors.JaxRuntimeError) as problem:
                # The latter: it was lost again at once.
                if session.is_suspended or self.manager.has_ended or attempts.is_over:
                    raise ElasticRuntimeError(
                        f"The proxy is gone, and there is no new one: {problem}", hint=self._again()
                    ) from problem
                reason = str(problem).partition("\n")[0]
                self.record.add(Kind.RETRY, f"No new proxy yet: {reason}", step=done)
        # What is compiled is the old proxy's, and must not be run once more.
        self.reconnected()
        active = tuple(sorted(self.manager.active_slice_indices))
        said = f"A new proxy is connected, with {listed(active)}."
        if unusable:
            said = f"A new proxy is connected, with {listed(active)}. Unusable from now on: {', '.join(unusable)}."
        self.record.add(Kind.RETRY, said, step=done, slices=active)

    def _again(self) -> str:
        """Return how a run without a proxy can go on, as the hint of an error."""
        session = self.manager.session
        if session is None or self.manager.has_ended:
            return advice("{connect}, then call train_loop again with the same snapshots=.")
        if session.is_suspended:
            return advice("{resume} brings them back, then call train_loop again with the same snapshots=.")
        return advice("{reconnect}, then call train_loop again with the same snapshots=.")

    def pause(self, *, done: int) -> None:
        """Wait until there are enough slices.

        Raises:
          ProxyLostError: The proxy is gone, and no slice can come back to it.
          TimeoutError: There are still too few when the time is over.
        """
        up = self.manager.active_slice_count
        needed = self.needed(up)
        self.record.add(Kind.WAITING, paused_words(up, needed), step=done)
        with self.record.goodput.during(Spent.SLICE_DOWN):
            self.manager.active_slice_indices = self.manager.health.wait_for(needed, timeout=self.timeout)

    def restore(self, *, done: int) -> Restored:
        """Wait for enough slices, and put the newest readable snapshot on them; raises what :meth:`after` handles."""
        while (up := self.manager.active_slice_count) < self.needed(up):
            self.pause(done=done)
        for snapshot in self.snapshots.candidates():
            if self._failures >= _MOST_FAILURES_ON_HOSTS:
                # All slices answer, but these copies cannot be read.
                snapshot.pieces = None
            active = self.manager.active_slice_indices
            try:
                with self.record.goodput.during(Spent.CHECKPOINT_RESTORE):
                    mesh = self.mesh_on(active)
                    state = snapshot.on(mesh, usable=active)
            except ElasticRuntimeError as error:
                # Its pieces were on lost slices only. An older one may have been taken on another mesh.
                logger.info("snapshot before step %d: %s", snapshot.step, error)
                self.snapshots.drop(snapshot)
                continue
            repeated = max(0, done - snapshot.step)
            self.record.add(
                Kind.RESTORED,
                f"The state before step {snapshot.step} is on {listed(active)}; steps repeated: {repeated}.",
                step=snapshot.step,
                slices=tuple(sorted(active)),
                repeated=repeated,
            )
            return Restored(snapshot, state, mesh)
        raise ElasticRuntimeError(
            "No snapshot of the state has survived.",
            hint='Keep them in the notebook: Snapshots(where="notebook"), or replicate the state over slices.',
        )
