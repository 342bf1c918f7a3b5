"""The kernel's connection to its supervisor: carries requests and events, and its end ends the session.

Only this process may hold the kernel's end. A child that outlived the kernel would keep the session alive, so a forked
child closes its copy at once. A reader thread takes in events, so that they arrive also while a cell computes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.events import Event, EventKind, SessionSlice, SessionState, slices_after
from pathways_jupyter.base.interrupts import Changes
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.session import protocol, registry
from pathways_jupyter.session.protocol import Method, Request, Response

_REMEMBERED = 10_000
_UNUSED = ("unused_since", "suspends_at")


@dataclass
class _Reader:
    """State of the thread that reads a connection, which sets it itself.

    Until Python 3.12 an Interrupt inside ``Thread.is_alive()`` makes it False for good. Apart from the link, because
    that may be garbage already when the thread ends.
    """

    ended: bool = False


class SupervisorLink:
    """The connection of a kernel to the supervisor of its session.

    Attributes:
      on_lost: Called on the reader thread, with the reason, when the proxy has become unusable, also by a reconnect.
      handlers: Called on the reader thread with the parameters of the supervisor's requests; each returns the answer,
        which is None for a method without a handler.
      state: The session's state, as last reported.
      state_since: When that state began, in seconds since the epoch.
      slices: The slices that the session holds, as last reported.
      unused: The record's ``unused_since`` and ``suspends_at``, as last reported.
      of_proxy: The record's :data:`~pathways_jupyter.session.protocol.OF_PROXY` as of the last connect.
      ended: Whether the connection has ended, so that no request can be answered.

    Args:
      connection: A connected socket; the link owns it from now on.
      session: The session's id.
      process: The supervisor, if this process started it; reaped when it ends.
      orphaned: Called on the reader thread when the supervisor has died without announcing its end, before anything is
        reported: the process may end on that. What it returns is called after it, may take minutes, and returns a
        sentence, which is added as one more event.
    """

    def __init__(
        self,
        connection: socket.socket,
        session: str,
        *,
        process: subprocess.Popen[bytes] | None = None,
        orphaned: Callable[[], Callable[[], str]] | None = None,
    ) -> None:
        self.session = session
        self.on_lost: Callable[[str], None] | None = None
        self.handlers: Mapping[Method, Callable[..., Any]] = {}
        self._socket = connection
        self._process = process
        self._orphaned = orphaned
        self._changed = Changes()
        self._ids = itertools.count(1)
        # Requests whose answer is still to be read, and the answers to them.
        self._open: set[int] = set()
        self._answers: dict[int, Response] = {}
        self._events: list[Event] = []
        self._dropped = 0
        self.state = SessionState.STARTING
        self.state_since = time.time()
        self.slices: tuple[SessionSlice, ...] = ()
        self.unused: Mapping[str, Any] = dict.fromkeys(_UNUSED, 0.0)
        self.of_proxy: Mapping[str, Any] = {}
        self.ended = False
        self._closing = False
        _links.add(self)
        # The thread holds a weak reference only. An Interrupt may hit after this constructor and before the caller has
        # assigned the link; it is then garbage, and the finalizer shuts the connection down, which ends the session.
        self._reader = _Reader()
        thread = threading.Thread(
            target=_read, args=(weakref.ref(self), connection, self._reader), name="pathways-session", daemon=True
        )
        weakref.finalize(self, _hang_up, connection).atexit = False
        thread.start()

    @property
    def generation(self) -> int:
        """The generation of the proxy that was connected last, as last reported."""
        return int(self.of_proxy.get("generation", 0))

    @property
    def usable(self) -> bool:
        """Return whether the connection is open, and neither closed nor abandoned on this side."""
        return not self.ended and not self._closing

    @property
    def count(self) -> int:
        """The number of events so far."""
        with self._changed.lock:
            return self._dropped + len(self._events)

    def events(self, since: int = 0) -> list[Event]:
        """Return the events from number `since` on, without those that are no longer kept."""
        with self._changed.lock:
            return self._events[max(0, since - self._dropped) :]

    def request(self, method: Method, *, patience: float | None = None, **params: Any) -> Any:
        """Send a request, and return its result; an answer that comes after this was interrupted is dropped.

        Raises: As :meth:`answer`.
        """
        number = self.ask(method, **params)
        try:
            return self.answer(number, patience=patience)
        finally:
            self.forget(number)

    def notify(self, method: Method, **params: Any) -> None:
        """Send a request whose answer does not matter, and do not wait."""
        self.forget(self.ask(method, **params))

    def ask(self, method: Method, **params: Any) -> int:
        """Send a request, and return its number for :meth:`answer`, which raises if the supervisor is gone.

        For a caller that watches what happens until then; others call :meth:`request`.
        """
        number = next(self._ids)
        # Before it is sent, because an answer to a request that is not open is dropped.
        self._open.add(number)
        # A send error is not raised here: the reader thread may still have to read why the supervisor ended.
        with contextlib.suppress(OSError):
            self._socket.sendall(protocol.encode(Request(number, method, params)))
        return number

    def answer(self, number: int, *, patience: float | None = None) -> Any:
        """Wait for the answer to request `number`, and return its result.

        Args:
          patience: Seconds to wait; None waits as long as the supervisor lives.

        Raises:
          SessionError: The supervisor is gone, or `patience` is over.
          PathwaysError: The answer is an error.
        """
        done = self._changed.wait_for(
            lambda: number in self._answers or self.ended or self._reader.ended, timeout=patience
        )
        # The answer takes precedence over the end: a supervisor may answer and exit before this thread wakes.
        answer = self._answers.pop(number, None)
        if answer is not None:
            self._open.discard(number)
        elif not done:
            raise SessionError("The supervisor is still working.", hint=advice("{status} shows how far it is."))
        else:
            raise SessionError(
                "The session's supervisor is gone.", hint=advice("{reconnect} starts a new one with the same settings.")
            )
        if answer.error is not None:
            raise answer.error
        return answer.result

    def forget(self, number: int) -> None:
        """Drop the answer to request `number`, also one that is still to come; no-op if it has been read."""
        with self._changed.lock:
            self._open.discard(number)
            self._answers.pop(number, None)

    def watch(self, since: int = 0, *, until: int | None = None) -> Iterator[Event]:
        """Yield events from number `since` on as they arrive.

        Args:
          until: The number of a request: its answer ends the iteration, and is left for :meth:`answer`. None goes
            on as long as the supervisor lives.
        """
        while True:

            def ready(since: int = since) -> bool:
                new = self._dropped + len(self._events) > since
                return new or self.ended or (until is not None and until in self._answers)

            self._changed.wait_for(ready)
            # Read both under one lock, so that no event is skipped or repeated. Yield outside of it: the consumer may
            # take its time, and the reader thread needs the lock.
            with self._changed.lock:
                fresh = self._events[max(0, since - self._dropped) :]
                since = self._dropped + len(self._events)
            yield from fresh
            # Events that came before the answer or the end are yielded first; only a round without any is the last.
            if not fresh:
                return

    def end_unless_begun(self) -> None:
        """End a supervisor that this process has started and that has reported nothing, so that nothing exists yet.

        On a busy machine it takes seconds to start. One that begins in this moment handles the signal, and cleans up.
        """
        if self._process is not None and not self.count:
            self._process.terminate()

    def close(self, *, patience: float = 0.0) -> bool:
        """End the session from this side, and wait for the supervisor to exit.

        Returns:
          Whether it has exited; otherwise it continues to clean up by itself.
        """
        self._closing = True
        # Only the sending side: the supervisor sees the end, and what it still reports while cleaning up is received.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        return self._changed.wait_for(lambda: self._reader.ended, timeout=patience)

    def _end(self) -> None:
        """Handle the end of the connection."""
        if self._process is not None:
            # It is 0 only at the end of its main(), which comes after its clean-up.
            ended_well = self._process.wait() == 0
        else:
            ended_well = self._closing and registry.read(self.session) is None
        # However its process has ended: when it says that it is closed, nothing is left.
        outcome = None
        if not ended_well and self.state is not SessionState.CLOSED:
            outcome = self._orphaned() if self._orphaned is not None else None
            # In one step with the end: a caller that reconnects on this event must not ask the dead supervisor.
            data = {"state": SessionState.LOST}
            lost = Event(EventKind.SUPERVISOR_LOST, "The session's supervisor is gone.", time.time(), data)
            self._take(lost, last=True)
        with self._changed.lock:
            self.ended = True
            self._changed.notify_all()
        _links.discard(self)
        try:
            # After the end is known, because it may take minutes.
            if outcome is not None:
                self._take(Event(EventKind.WARNING, outcome(), time.time()))
        finally:
            with self._changed.lock:
                self._reader.ended = True
                self._changed.notify_all()

    def _take(self, message: protocol.Message, *, last: bool = False) -> None:
        if isinstance(message, Request):
            answer, handler = None, self.handlers.get(message.method)
            with contextlib.suppress(Exception):
                # Whatever JAX says of a client that is going away: this thread reads all that follows.
                answer = handler(**message.params) if handler is not None else None
            # Beside what the user's thread sends: a socket takes so short a line as a whole.
            with contextlib.suppress(OSError):
                self._socket.sendall(protocol.encode(Response(message.id, answer)))
            return
        with self._changed.lock:
            self.ended = self.ended or last
            if isinstance(message, Response):
                if message.id in self._open:
                    self._answers[message.id] = message
            elif isinstance(message, Event):
                self._events.append(message)
                if len(self._events) > _REMEMBERED:
                    del self._events[: _REMEMBERED // 10]
                    self._dropped += _REMEMBERED // 10
                if message.data.get("state", self.state) != self.state:
                    self.state = SessionState(message.data["state"])
                    self.state_since = float(message.data.get("since", message.at))
                    if not self.state.is_connected:
                        self.unused = dict.fromkeys(_UNUSED, 0.0)
                if message.kind is EventKind.UNUSED:
                    self.unused = {name: float(message.data[name]) for name in _UNUSED}
                self.slices = slices_after(self.slices, message)
                if "generation" in message.data:
                    self.of_proxy = {name: message.data[name] for name in protocol.OF_PROXY if name in message.data}
            self._changed.notify_all()
        if not isinstance(message, Event) or self.on_lost is None:
            return
        # While another proxy is made too, as by the sidebar's Reconnect during a cell: the one that JAX has is gone.
        if "state" in message.data and not self.state.is_connected:
            self.on_lost(message.message)


def _read(reference: weakref.ref[SupervisorLink], connection: socket.socket, reader: _Reader) -> None:
    """Read messages until the connection ends or the link is garbage; runs on the reader thread."""
    try:
        _read_messages(reference, connection)
    finally:
        reader.ended = True


def _read_messages(reference: weakref.ref[SupervisorLink], connection: socket.socket) -> None:
    pending = b""
    with contextlib.suppress(OSError):
        while data := connection.recv(1 << 16):
            *lines, pending = (pending + data).split(b"\n")
            link = reference()
            if link is None:
                break
            for line in lines:
                with contextlib.suppress(PathwaysError):
                    link._take(protocol.decode(line))
            # No strong reference while this thread blocks in recv(), or the link would never be collected.
            del link
    connection.close()
    link = reference()
    if link is not None:
        link._end()


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


_links: weakref.WeakSet[SupervisorLink] = weakref.WeakSet()


def _abandon_all() -> None:
    """Close this end of every connection in a forked child, where it must not keep the session alive."""
    for link in list(_links):
        link._closing = link._reader.ended = True
        # close() and not shutdown(), which would end the connection of the parent too.
        with contextlib.suppress(OSError):
            os.close(link._socket.detach())


os.register_at_fork(after_in_child=_abandon_all)
