"""Usable slices: from the session's events at once, by asking the devices where there is no session.

A slice that comes back after a loss is trusted only after a settle time, which doubles with each loss: moving a
training run to a slice that is about to fail again costs more than waiting for it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.events import LOSSES, SLICE_EVENTS, EventKind
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.elastic.errors import ProxyLostError, is_slice_down
from pathways_jupyter.session.kernel import process

if TYPE_CHECKING:
    import jax

    from pathways_jupyter.session.kernel.session import Session

SETTLE_SECONDS = 1.0
"""Default time that a slice must stay up after its first loss before it is trusted."""
LONGEST_SETTLE_SECONDS = 300.0
_FORGIVE_SECONDS = 600.0
"""A loss that is older does not make a slice flapping."""
_REPORT_SECONDS = 30.0
"""Time after an error in which the session's event about the same loss may come."""

logger = logging.getLogger(__name__)


@dataclass
class _Slice:
    """State of one slice.

    Attributes:
      trusted_from: Monotonic time from which on it is trusted, if it is up.
      losses: Monotonic times of its losses.
      unreported: Monotonic time of a loss that an error has named, and of which the session's event is still to come.
    """

    up: bool = True
    trusted_from: float = 0.0
    losses: list[float] = field(default_factory=list)
    unreported: float = -math.inf


class Health:
    """The health of the slices of one process.

    Args:
      slices: Devices by slice index.
      session: The session whose events report losses and recoveries; without one, slices are probed.
      settle_seconds: See :data:`SETTLE_SECONDS`.
    """

    def __init__(
        self,
        slices: Mapping[int, Sequence[jax.Device]],
        session: Session | None = None,
        *,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._devices = dict(slices)
        self._session = session
        self._settle_seconds = settle_seconds
        self._slices = {index: _Slice() for index in slices}
        self._changed = interrupts.Changes()
        self._closed: interrupts.InterruptibleEvent | None = None
        self.listeners: list[Callable[[int, bool, str], None]] = []
        """Called with a slice's index, whether it is up, and a sentence, after every change."""

    def start(self, poll_seconds: float = 10.0) -> None:
        """Start to watch; no-op if that has been done.

        Args:
          poll_seconds: Interval of the probes where there is no session.
        """
        if self._closed is not None:
            return
        closed = self._closed = interrupts.InterruptibleEvent()
        if (session := self._session) is not None:
            # Before the states are read, so that no change between the two is missed.
            since = session.event_count
            for each in session.record.slices:
                self._set(each.index, each.up)
            watch = threading.Thread(target=self._follow, args=(session, since, closed), daemon=True)
        else:
            watch = threading.Thread(target=self._poll, args=(poll_seconds, closed), daemon=True)
        watch.name = "elastic-health"
        watch.start()

    def close(self) -> None:
        """Stop to watch; :meth:`start` starts again."""
        # Following a session's events blocks until the next one: that thread is a daemon, ends then, and is not joined.
        if self._closed is not None:
            self._closed.set()
            self._closed = None

    @property
    def is_watching(self) -> bool:
        """Return whether it was started, and not closed since."""
        return self._closed is not None

    @property
    def up(self) -> frozenset[int]:
        """The slices that are up, trusted or not."""
        with self._changed.lock:
            return frozenset(index for index, each in self._slices.items() if each.up)

    @property
    def trusted(self) -> frozenset[int]:
        """The slices that are up and have been for their settle time."""
        with self._changed.lock:
            return self._trusted_now()

    def check(self, indices: Iterable[int] | None = None) -> frozenset[int]:
        """Ask the devices of `indices` (default: of all slices); return the slices that answered.

        Slices that did not are marked as down at once; those that did are marked as up.
        """
        probed = {index: self._devices[index] for index in (self._devices if indices is None else indices)}
        answered = probe(probed)
        for index in probed:
            self._set(index, index in answered)
        return answered

    def lose(self, indices: Iterable[int], *, since: float) -> None:
        """Note the loss of slices that an error has named, also if they are back before anyone asks them.

        Args:
          since: Monotonic time from which on they were used: a loss after it that is known already is the same one.
        """
        for index in indices:
            with self._changed.lock:
                state = self._slices[index]
                is_new = state.up and not any(at >= since for at in state.losses)
            if is_new:
                self._set(index, False, is_named=self._session is not None)

    def wait_for(self, count: int, *, timeout: float | None = None) -> frozenset[int]:
        """Wait until at least `count` slices are trusted; return them.

        Raises:
          ProxyLostError: The proxy is gone, and no slice can come back to it.
          TimeoutError: They are not after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            # At each turn, because the proxy may be lost during the wait.
            if self._session is not None and not self._session.has_devices:
                raise ProxyLostError("The proxy is gone.", hint=advice("{reconnect} gets a new one."))
            if len(trusted := self.trusted) >= count:
                return trusted
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"Only {len(trusted)} of {count} slices are up after {timeout:g} s.")
            # A settle time ends without a notification. Bounded, so that an Interrupt of the main thread is never late.
            now, pause = time.monotonic(), 1.0 if left is None else min(1.0, left)
            for each in self._slices.values():
                if each.up and each.trusted_from > now:
                    pause = min(pause, each.trusted_from - now)
            self._changed.wait_for(lambda: len(self._trusted_now()) >= count, max(0.001, pause))

    def _trusted_now(self) -> frozenset[int]:
        now = time.monotonic()
        return frozenset(index for index, each in self._slices.items() if each.up and each.trusted_from <= now)

    def _set(self, index: int, up: bool, *, is_named: bool = False) -> None:
        """Note whether a slice is up; with `is_named`, an event about the same loss may follow."""
        now, number = time.monotonic(), process.slice_numbers().get(index, str(index))
        with self._changed.lock:
            state = self._slices.get(index)
            if state is None:
                return
            # A loss that an error has named, and the session's event about it, count once.
            is_reported = not up and now - state.unreported < _REPORT_SECONDS
            if not up:
                state.unreported = -math.inf
            if state.up == up:
                return
            state.up = up
            if up:
                recent = [at for at in state.losses if now - at < _FORGIVE_SECONDS]
                settle = min(LONGEST_SETTLE_SECONDS, self._settle_seconds * 2 ** max(0, len(recent) - 1))
                state.losses, state.trusted_from = recent, now + settle
                sentence = _up_again(number, len(recent), f"{settle:g}")
            else:
                state.losses += [] if is_reported else [now]
                state.unreported = now if is_named else -math.inf
                sentence = f"Slice {number} is down."
            self._changed.notify_all()
        # Outside of the lock: listeners ask which slices are up.
        logger.info(sentence)
        for listener in tuple(self.listeners):
            try:
                listener(index, up, sentence)
            except Exception:
                # A listener's error must not end the watch.
                logger.exception("a listener of slice health")

    def _follow(self, session: Session, since: int, closed: interrupts.InterruptibleEvent) -> None:
        """Apply the session's events; they arrive on a thread of their own, however busy the main thread is."""
        for event in session.follow(since):
            if closed.is_set():
                return
            if event.kind in SLICE_EVENTS:
                self._set(int(event.data["slice"]), event.kind is not EventKind.SLICE_DOWN)
            elif event.kind in LOSSES:
                for index in self._slices:
                    self._set(index, False)

    def _poll(self, seconds: float, closed: interrupts.InterruptibleEvent) -> None:
        while not closed.wait(seconds):
            try:
                self.check()
            except Exception:
                logger.exception("probing slices")


def _up_again(number: str, losses: int, seconds: str) -> str:
    if losses < 2:
        return f"Slice {number} is up again; it is used when it has been up for {seconds} s."
    return f"Slice {number} is up again after {losses} losses; it is used when it has been up for {seconds} s."


def by_slice(devices: Sequence[jax.Device]) -> dict[int, tuple[jax.Device, ...]]:
    """Return `devices` by the slice they are on; devices without slices are one slice, 0."""
    by_index: dict[int, list[jax.Device]] = {}
    for device in devices:
        by_index.setdefault(int(getattr(device, "slice_index", 0)), []).append(device)
    return {index: tuple(each) for index, each in sorted(by_index.items())}


def probe(slices: Mapping[int, Sequence[jax.Device]]) -> frozenset[int]:
    """Put a number on every device of every slice; return the slices on which all succeeded."""
    import jax
    import numpy as np

    # All are started before any is awaited, so that a probe takes as long as the slowest device.
    return readable({index: jax.device_put([np.float32(1)] * len(each), list(each)) for index, each in slices.items()})


def readable(arrays: Mapping[int, Any]) -> frozenset[int]:
    """Return the slices, of the keys of `arrays`, whose arrays have been computed."""
    import jax

    usable = set()
    for index, values in arrays.items():
        try:
            jax.block_until_ready(values)
        except jax.errors.JaxRuntimeError as error:
            if not is_slice_down(error):
                raise
        else:
            usable.add(index)
    return frozenset(usable)
