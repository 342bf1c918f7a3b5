"""The state of one session: its record, its configuration and its events, kept for later clients.

Every part of the supervisor reports here. Each report updates the record on disk, the log file and all listeners, in
that order.

A listener that does not read must neither block the supervisor nor grow its memory. Beyond a bound it is disconnected,
so that it knows that it missed events and can subscribe again. The owner is never disconnected, because that would end
the session; a kernel that was stopped for so long misses the events that did not fit.

What clients record has a share of its own, so that a training run that loses slices all night does not push out how the
session was connected.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.base import text, tpu
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import (
    SLICE_EVENTS,
    TRANSITIONS,
    Event,
    EventKind,
    SessionState,
    Stage,
    SuspendedArrays,
    Transfer,
    slices_after,
)
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.service.session_figures import SessionFigures
from pathways_jupyter.session import protocol, registry
from pathways_jupyter.session.recording import DATA_BYTES
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.tunnel.portforward import Traffic

REMEMBERED = 1000
RECORDED = 500
"""Most remembered events that clients recorded."""
UNREAD_BYTES = 4 << 20
_FOR_A_WHILE = frozenset({SessionState.INTERRUPTED, SessionState.SUSPENDING})
"""States that may lead back to the one before, which then lasts as long as if they had not been."""


class History:
    """The events of one session, and its listeners."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=REMEMBERED)
        self._run: Event | None = None
        self._listeners: dict[asyncio.StreamWriter, bool] = {}

    def add(self, event: Event) -> None:
        """Remember `event` and send it to all listeners.

        An :attr:`EventKind.ELASTIC_RUN` replaces the previous one, and does not go back to the kernel, its origin.
        """
        if event.kind is EventKind.ELASTIC_RUN:
            self._run = event
        else:
            if event.kind in DATA_BYTES:
                recorded = [each for each in self._events if each.kind in DATA_BYTES]
                if len(recorded) >= RECORDED:
                    self._events.remove(recorded[0])
            self._events.append(event)
        line = protocol.encode(event)
        for writer, owner in list(self._listeners.items()):
            if not (owner and event is self._run):
                self._send(writer, line)

    def listen(self, writer: asyncio.StreamWriter, *, owner: bool = False) -> None:
        """Send every event to `writer` from now on, the remembered ones first.

        Args:
          owner: Whether `writer` belongs to the kernel, which is never disconnected.
        """
        self._listeners[writer] = owner
        for event in [*self._events, *([self._run] if self._run is not None and not owner else [])]:
            self._send(writer, protocol.encode(event))

    def leave(self, writer: asyncio.StreamWriter) -> None:
        """Remove `writer` from the listeners."""
        self._listeners.pop(writer, None)

    def _send(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        try:
            if writer.is_closing():
                return
            if writer.transport.get_write_buffer_size() <= UNREAD_BYTES:
                writer.write(line)
            elif not self._listeners.get(writer):
                logger.warning("a listener left more than %d bytes unread and is disconnected", UNREAD_BYTES)
                self.leave(writer)
                # abort() and not close(), which would wait until all of it has been read.
                writer.transport.abort()
        except Exception:
            # A listener's fault must reach neither the publisher nor the other listeners.
            logger.exception("a listener failed; it gets no more events")
            self.leave(writer)


logger = logging.getLogger(__name__)


class SessionLog:
    """Record, configuration and events of one session.

    Args:
      record: The initial record; written to disk only by the first :meth:`publish`.

    Attributes:
      record: The current record.
      config: The settings that the user asked for.
      history: Past events, and the listeners for new ones.
      traffic: The bytes that the tunnels of its proxies have carried.
    """

    def __init__(self, record: SessionRecord, config: ConnectConfig) -> None:
        self.record = record
        self.config = config
        self.history = History()
        self.traffic = Traffic()
        self._published = False
        self._slices_lost = self._slices_healed = self._interruptions = 0
        # Whether something was sent is looked at when the figures are written, a few times a minute.
        self._sent, self._sent_at = 0, boot_seconds()
        # When the state began, on a clock that cannot be set.
        self._entered = boot_seconds()
        # States that were left for a while, and since when they last.
        self._left: dict[SessionState, float] = {}

    def publish(self, **changes: Any) -> None:
        """Write a change of the record to disk before it takes effect, so that a sweep finds what will be created.

        Raises:
          SessionError: The record cannot be written.
        """
        self._published = True
        self.record = dataclasses.replace(self.record, **changes)
        try:
            registry.write(self.record)
        except OSError as error:
            raise SessionError(
                f"The session's record {registry.record_path(self.record.id)} cannot be written: {error.strerror}.",
                hint="Free some space there, or set JUPYTER_RUNTIME_DIR to another directory, and connect again.",
            ) from error

    def change(self, settings: Mapping[str, Any]) -> None:
        """Change settings of the session, for its next proxy."""
        config = dataclasses.replace(self.config, **settings)
        self.configure(dataclasses.replace(config, at_least=min(config.at_least, sum(config.instances.values()))))

    def configure(self, config: ConnectConfig) -> None:
        """Give the session these settings, if it has others."""
        if config != self.config:
            self.config = config
            self.update(config=protocol.config_to_json(config), instances=dict(config.instances))

    def update(self, **changes: Any) -> None:
        """Change the record.

        Failing to write it is not an error: clients ask the supervisor itself, and what a sweep needs was published
        before.
        """
        self.record = dataclasses.replace(self.record, **changes)
        if not self._published:
            return
        try:
            registry.write(self.record)
        except OSError as error:
            logger.warning("the record cannot be written: %s", error)

    def enter(self, state: SessionState, message: str, **data: Any) -> None:
        """Transition to `state` and publish an event; no-op if already there."""
        if state is self.record.state:
            return
        # A bug of this package. The state is entered anyway: clients must see what is.
        if state not in TRANSITIONS[self.record.state]:
            logger.error("no transition leads from %s to %s", self.record.state, state)
        now, entered, before = time.time(), boot_seconds(), self.record
        waited = before.waited + (entered - self._entered if before.state is SessionState.WAITING else 0.0)
        self._entered = entered
        # The record first: a client that reads it because of the event must find the new state.
        unused = {} if state.is_connected else {"unused_since": 0.0, "suspends_at": 0.0}
        transfer = before.transfer if state.is_connected else None
        since = self._since(state, now)
        self.update(state=state, state_since=since, waited=waited, transfer=transfer, **unused)
        if since != now:
            data["since"] = since
        self._publish(Event(EventKind.STATE, message, now, {"state": state, **data}))
        if state in _FOR_A_WHILE:
            self._left = {**(self._left if before.state in _FOR_A_WHILE else {}), before.state: before.state_since}
        elif before.state is SessionState.LOST:
            # It is lost as before, should the next proxy not come.
            self._left = {before.state: before.state_since}
        elif not state.is_connected and state is not SessionState.WAITING:
            self._left = {}

    def _since(self, state: SessionState, now: float) -> float:
        """Return since when `state` lasts once it is entered: longer where it was left only for a while."""
        if state is SessionState.SUSPENDED and self.record.saved is not None:
            return self.record.saved.at
        return self._left.get(state, now)

    @property
    def used_at(self) -> float:
        """Time of the last bytes to its proxy, as far as that was looked at, on the clock of :func:`boot_seconds`.

        It began then where JAX needs no tunnel.
        """
        if self.traffic.sent != self._sent:
            self._sent, self._sent_at = self.traffic.sent, boot_seconds()
        return self._sent_at

    def limit_idleness(self, service: float) -> None:
        """Set after how many seconds without use it is suspended: as the user wants, or the `service` if that is less.

        0 means never, for either.
        """
        limit = min(filter(None, (self.config.suspend_after, service)), default=0.0)
        if limit != self.record.suspend_after:
            self.update(suspend_after=limit)

    def unused(self, message: str, since: float = 0.0, *, suspends_at: float = 0.0) -> None:
        """Report since when nothing was computed, and when it is suspended for that; 0, that this is no longer so."""
        # The record first, as in enter().
        self.update(unused_since=since, suspends_at=suspends_at)
        self.report(EventKind.UNUSED, message, unused_since=since, suspends_at=suspends_at)

    def figures(self, *, relay: bool) -> SessionFigures:
        """Return the session's figures for those who operate the cluster; its proxy has a relay or not."""
        record, now = self.record, boot_seconds()
        waiting = now - self._entered if record.state is SessionState.WAITING else 0.0
        has_tunnel = not record.direct
        return SessionFigures(
            session=record.id,
            user=record.user,
            namespace=record.namespace,
            service=record.service,
            state=record.state,
            waited=round(record.waited + waiting, 3),
            reconnects=max(0, record.generation - 1),
            chips=sum(tpu.parse_instance_type(name).chips * number for name, number in record.instances.items()),
            losses=self._slices_lost,
            recoveries=self._slices_healed,
            interruptions=self._interruptions,
            sent=self.traffic.sent if has_tunnel else None,
            received=self.traffic.received if has_tunnel else None,
            idle=round(now - self.used_at, 3) if has_tunnel else None,
            relay=relay,
        )

    def connected(self) -> None:
        """Transition to connected, or to resuming, once there is a proxy.

        The event says what is new about the proxy, for the kernel of a session that others reconnect.
        """
        self.update(connected_since=time.time())
        facts = {name: getattr(self.record, name) for name in protocol.OF_PROXY}
        message = "Connected."
        if self.record.saved is not None:
            message = "A new proxy is connected; the saved arrays are not back yet."
        self._settle(message, **facts)

    def _settle(self, message: str, **data: Any) -> None:
        """Enter the state of a session whose proxy can be used."""
        if self.record.saved is not None:
            self.enter(SessionState.RESUMING, message, **data)
        elif self.record.transfer is not None:
            self.enter(SessionState.SUSPENDING, message, **data)
        else:
            self.enter(SessionState.CONNECTED, message, **data)
            self._judge_slices()
            # Only now: it was degraded before, perhaps, and still is.
            self._left = {}

    def transferred(self, transfer: Transfer | None) -> None:
        """Record how far the kernel is with the arrays that it suspends or resumes; None: it has ended, undone."""
        state = self.record.state
        self.update(transfer=transfer if state.is_connected else None)
        if transfer is None and state is SessionState.SUSPENDING:
            self._settle("Not suspended; the arrays are where they were.")
        elif transfer is not None and state in {SessionState.CONNECTED, SessionState.DEGRADED}:
            self._settle(f"Saving arrays, to suspend: {text.size(transfer.total)}.")

    def suspended(self, arrays: SuspendedArrays) -> None:
        """Transition to suspended, with these arrays saved."""
        # Before the state: its time is that of the save.
        self.update(saved=arrays)
        self.enter(SessionState.SUSPENDED, f"Suspended. Saved: {arrays}.")

    def resumed(self, outcome: str) -> None:
        """Transition from resuming to connected: the kernel has its saved arrays again, as `outcome` says."""
        # Without a proxy they are lost again, and what was saved is all that there is.
        if self.record.saved is not None and self.record.state is SessionState.RESUMING:
            self.update(saved=None, transfer=None)
            self._settle(f"Resumed: {outcome}")

    def forget_saved(self) -> None:
        """Drop the arrays of a kernel that has ended, which no other one can restore; they stay in the bucket."""
        self.update(saved=None, transfer=None)
        if self.record.state in {SessionState.SUSPENDING, SessionState.RESUMING}:
            self._settle("Connected, without the arrays of the kernel that has ended.")

    def interrupted(self, reason: str) -> None:
        """Transition to interrupted: the proxy keeps its arrays while the connection is tried again.

        Where it is interrupted already, `reason` is what keeps it so.
        """
        if self.record.state is SessionState.INTERRUPTED:
            self.report(EventKind.WARNING, f"Still no connection. {reason}")
        elif self.record.state.is_connected:
            message = (
                f"Lost the connection to the cluster ({reason.rstrip('.')}). Arrays are kept for "
                f"{self.config.keep / 60:.0f} min; trying again."
            )
            self._interruptions += 1
            self.enter(SessionState.INTERRUPTED, message)

    def reconnected(self, seconds: float) -> None:
        """Transition back from interrupted to the state before it."""
        if self.record.state is SessionState.INTERRUPTED:
            self._settle(f"Connected again after {seconds:.0f} s; the arrays were kept.")

    def report(self, kind: EventKind, message: str, **data: Any) -> None:
        """Publish an event to all listeners, and log it.

        One about a slice changes the record's slices, and so whether the session is connected or degraded.
        """
        self._publish(Event(kind, message, time.time(), data))
        # While interrupted, what the slices do is not known; it is judged when the connection is back.
        known = self.record.state.is_connected and self.record.state is not SessionState.INTERRUPTED
        if kind in SLICE_EVENTS and known:
            self._judge_slices()

    def record_event(self, event: Event) -> None:
        """Publish an event that a client recorded; it changes neither the state nor the slices."""
        if event.kind is not EventKind.ELASTIC_RUN:
            logger.info("%s: %s", event.kind, event.message)
        self.history.add(event)

    def _publish(self, event: Event) -> None:
        details = ", ".join(f"{name}={value}" for name, value in event.data.items())
        logger.info("%s: %s%s", event.kind, event.message, f" ({details})" if details else "")
        self._slices_lost += event.kind is EventKind.SLICE_DOWN
        self._slices_healed += event.kind is EventKind.SLICE_HEALED
        slices = slices_after(self.record.slices, event)
        if slices != self.record.slices:
            self.update(slices=slices)
        # The record is up to date before a listener can ask for it.
        self.history.add(event)

    def _judge_slices(self) -> None:
        """Enter connected or degraded, whichever matches the slices; later, while arrays are on their way."""
        if self.record.state in {SessionState.SUSPENDING, SessionState.RESUMING}:
            return
        slices = self.record.slices
        up = sum(each.up for each in slices)
        if up < len(slices):
            down = f"Degraded: {up} of {len(slices)} slices up." if len(slices) > 1 else "Degraded: the slice is down."
            self.enter(SessionState.DEGRADED, down)
        else:
            healed = "All slices are up again." if len(slices) > 1 else "The slice is up again."
            self.enter(SessionState.CONNECTED, healed)

    def stage(self, stage: Stage, message: str, **data: Any) -> None:
        """Publish the progress of connecting."""
        self.report(EventKind.STAGE, message, stage=stage, **data)

    def waits(self, message: str) -> None:
        """Report that the slices are taken, and by whom."""
        if self.record.state is SessionState.STARTING:
            self.enter(SessionState.WAITING, message)
        else:
            self.stage(Stage.PLACE, message)

    def cleanup_waits(self, reason: str) -> None:
        """Report that the proxy cannot be removed yet."""
        self.report(EventKind.WARNING, f"The proxy cannot be removed yet, retrying: {reason}")
