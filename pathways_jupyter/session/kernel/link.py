"""The kernel's end of its supervisor: the connection that carries requests and events, and whose end ends the session.

Only this process may hold that end, or a child that outlives the kernel would keep the session alive; so forked
children close it first of all. What comes in is read by one thread, which sleeps in the kernel's stead: a cell that
computes for an hour still leaves the supervisor able to report.
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
from collections.abc import Callable, Iterator
from typing import Any

from pathways_jupyter.errors import PathwaysError, SessionError
from pathways_jupyter.events import Event, EventKind, SessionSlice, SessionState, slices_after
from pathways_jupyter.session import protocol, registry
from pathways_jupyter.session.protocol import Answer, Method, Request

_REMEMBERED = 10_000
_UNUSABLE = frozenset({SessionState.LOST, SessionState.CLOSING, SessionState.CLOSED, SessionState.FAILED})


class Link:
    """The connection of a kernel to the supervisor of its session.

    Attributes:
      on_lost: Called on the reading thread, with the reason, when the proxy cannot be used any more.

    Args:
      connection: A connected socket; the link owns it from now on.
      session: The session's id.
      process: The supervisor, when this process started it; it is waited for, so that it leaves no zombie.
      orphaned: Called on the reading thread when the supervisor is gone without having said so. What it returns is
        told as one more event.
    """

    def __init__(
        self,
        connection: socket.socket,
        session: str,
        *,
        process: subprocess.Popen[bytes] | None = None,
        orphaned: Callable[[], str] | None = None,
    ) -> None:
        self.session = session
        self.on_lost: Callable[[str], None] | None = None
        self._socket = connection
        self._process = process
        self._orphaned = orphaned
        self._changed = threading.Condition()
        self._ids = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        self._events: list[Event] = []
        self._dropped = 0
        self._state = SessionState.STARTING
        self._state_since = time.time()
        self._slices: tuple[SessionSlice, ...] = ()
        self._generation = 0
        self._ended = False
        self._closing = False
        _links.add(self)
        # The thread does not keep this link: an Interrupt may drop it before anybody has a name for it.
        self._reader = threading.Thread(
            target=_read, args=(weakref.ref(self), connection), name="pathways-session", daemon=True
        )
        weakref.finalize(self, _hang_up, connection).atexit = False
        self._reader.start()

    @property
    def state(self) -> SessionState:
        """The session's state, as far as has been reported."""
        return self._state

    @property
    def state_since(self) -> float:
        """When that state began, in seconds since the epoch."""
        return self._state_since

    @property
    def slices(self) -> tuple[SessionSlice, ...]:
        """The slices that the session holds, as far as has been reported."""
        return self._slices

    @property
    def generation(self) -> int:
        """Which of the session's proxies was connected last, as far as it has been told."""
        return self._generation

    @property
    def ended(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._ended

    @property
    def usable(self) -> bool:
        """Whether its other end is there, and this is the process that it belongs to."""
        return not self._ended and not self._closing

    @property
    def count(self) -> int:
        """How many events there have been."""
        with self._changed:
            return self._dropped + len(self._events)

    def events(self, since: int = 0) -> list[Event]:
        """The events from number `since` on; those that are too old to be remembered are left out."""
        with self._changed:
            return self._events[max(0, since - self._dropped) :]

    def ask(self, method: Method, **params: Any) -> int:
        """Sends a request, and returns its number for :meth:`answer`, which tells if the supervisor is gone."""
        number = next(self._ids)
        # What it said before it went has yet to be read, and says why.
        with contextlib.suppress(OSError):
            self._socket.sendall(protocol.encode(Request(number, method, params)))
        return number

    def answer(self, number: int, *, patience: float | None = None) -> Any:
        """Waits for the answer to request `number`, and returns its result.

        Args:
          patience: Seconds to wait; None waits as long as the supervisor lives.

        Raises:
          SessionError: The supervisor is gone, or `patience` is over.
          PathwaysError: The answer is an error.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: number in self._answers or self._ended, timeout=patience)
            answer = self._answers.pop(number, None)
        if answer is None:
            raise _gone() if done else SessionError("The supervisor is still at it.", hint="%pathways status tells.")
        if answer.error is not None:
            raise answer.error
        return answer.result

    def watch(self, since: int = 0, *, until: int | None = None) -> Iterator[Event]:
        """Yields events from number `since` on as they come.

        Args:
          until: The number of a request: its answer ends the iteration, and is left for :meth:`answer`. None goes
            on as long as the supervisor lives.
        """
        while True:
            with self._changed:

                def ready(since: int = since) -> bool:
                    new = self._dropped + len(self._events) > since
                    return new or self._ended or (until is not None and until in self._answers)

                self._changed.wait_for(ready)
                fresh = self._events[max(0, since - self._dropped) :]
                since = self._dropped + len(self._events)
            yield from fresh
            if not fresh:
                return

    def close(self, *, patience: float = 0.0) -> bool:
        """Ends the session from this side, and waits until the supervisor is gone.

        Returns:
          Whether it is gone; otherwise it goes on cleaning up by itself.
        """
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._reader.join(patience)
        return not self._reader.is_alive()

    def abandon(self) -> None:
        """Gives up this end in a forked child, where it must not keep the session alive."""
        self._closing = True
        with contextlib.suppress(OSError):
            os.close(self._socket.detach())

    def _hear(self, line: bytes) -> None:
        with contextlib.suppress(PathwaysError):
            self._take(protocol.decode(line))

    def _end(self) -> None:
        """Note that the supervisor says no more."""
        died = self._died()
        if died:
            # In one step with the end: a caller that reconnects on this event must not ask the dead supervisor.
            self._take(_event("The session's supervisor is gone.", state=SessionState.LOST), last=True)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if died and self._orphaned is not None:
            self._take(_event(self._orphaned()))
        _links.discard(self)

    def _died(self) -> bool:
        """Whether the supervisor ended without having come to its end."""
        if self._process is not None:
            return self._process.wait() != 0
        if self._state is SessionState.CLOSED:
            return False
        return not self._closing or registry.read(self.session) is not None

    def _take(self, message: protocol.Message, *, last: bool = False) -> None:
        with self._changed:
            self._ended = self._ended or last
            if isinstance(message, Answer):
                self._answers[message.id] = message
            elif isinstance(message, Event):
                self._events.append(message)
                if len(self._events) > _REMEMBERED:
                    del self._events[: _REMEMBERED // 10]
                    self._dropped += _REMEMBERED // 10
                if message.data.get("state", self._state) != self._state:
                    self._state, self._state_since = SessionState(message.data["state"]), message.at
                self._slices = slices_after(self._slices, message)
                self._generation = message.data.get("generation", self._generation)
            self._changed.notify_all()
        if isinstance(message, Event) and message.data.get("state") in _UNUSABLE and self.on_lost is not None:
            self.on_lost(message.message)


def _read(reference: weakref.ref[Link], connection: socket.socket) -> None:
    """What a link's thread does, for as long as the link is there and the supervisor speaks."""
    pending = b""
    with contextlib.suppress(OSError):
        while data := connection.recv(1 << 16):
            *lines, pending = (pending + data).split(b"\n")
            link = reference()
            if link is None:
                break
            for line in lines:
                link._hear(line)
            del link
    connection.close()
    link = reference()
    if link is not None:
        link._end()


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _abandon_all() -> None:
    for link in list(_links):
        link.abandon()


os.register_at_fork(after_in_child=_abandon_all)


def _event(message: str, *, state: SessionState | None = None) -> Event:
    if state is None:
        return Event(EventKind.WARNING, message, time.time())
    return Event(EventKind.SUPERVISOR_LOST, message, time.time(), {"state": state})


def _gone() -> SessionError:
    return SessionError(
        "The session's supervisor is gone.", hint="%pathways reconnect starts a new one with the same settings."
    )
