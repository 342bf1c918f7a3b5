"""Sending half of a connection: respects the client's flow-control windows, and prefers small messages.

A small message is sent on the caller's thread. A large one, or one that does not fit into a window, is queued in its
call's outbox for the connection's writer thread, which serves the outboxes round-robin.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pathways_jupyter.local.pathways.http2 import wire
from pathways_jupyter.local.pathways.http2.wire import FrameType

Bytes = bytes | memoryview

_SMALL = 32 << 10
"""Size up to which a message may be sent on the caller's thread."""
_TURN = 512 << 10
"""Bytes that an outbox may send before the next one's turn."""


@dataclass(slots=True, eq=False)
class Outbox:
    """Queue of one call's unsent data.

    Attributes:
      window: The client's current flow-control window of this stream.
      end: The trailers, once they wait for the data before them.
      ended: The trailers have been queued or sent; nothing may follow.
    """

    stream: int
    window: int
    parts: deque[Bytes] = field(default_factory=deque)
    end: bytes | None = None
    ended: bool = False


class Sender:
    """Sends on one connection; any thread may use it."""

    def __init__(self, peer: socket.socket) -> None:
        self._socket = peer
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._window = wire.FIRST_WINDOW
        self._stream_window = wire.FIRST_WINDOW
        self._frame_limit = wire.SMALLEST_FRAME_LIMIT
        self._outboxes: dict[int, Outbox] = {}
        self._waiting: deque[Outbox] = deque()
        self._closed = False
        self._writing = False
        self._collecting = 0
        self._collected: list[Bytes] = []

    def collect(self) -> None:
        """Buffer what this thread sends from now on, until :meth:`flush`: many small answers then cost one system call.

        When another thread sends, it sends the buffered data first.
        """
        self._collecting = threading.get_ident()

    def flush(self) -> None:
        """Send the buffered data."""
        with self._lock:
            self._collecting = 0
            if self._collected:
                self._write([])

    def open(self, stream: int) -> Outbox:
        """Make an outbox for a new stream."""
        with self._lock:
            outbox = self._outboxes[stream] = Outbox(stream, self._stream_window)
            return outbox

    def control(self, frame: bytes) -> None:
        """Send a frame that is not subject to flow control."""
        with self._lock:
            self._write([frame])

    def send(self, outbox: Outbox, head: bytes, parts: Sequence[Bytes]) -> None:
        """Send headers, if they are still to be sent, then data.

        Args:
          head: A complete HEADERS frame, or nothing.
        """
        size = sum(map(len, parts))
        with self._lock:
            if outbox.ended or self._closed:
                return
            if not outbox.parts and size <= min(_SMALL, outbox.window, self._window):
                self._write([head, *self._framed(outbox, list(parts))])
                return
            if head:
                self._write([head])
            outbox.parts.extend(part for part in parts if len(part))
            if outbox not in self._waiting:
                self._waiting.append(outbox)
            if not self._writing:
                self._writing = True
                threading.Thread(target=self._run, name="http2 writer", daemon=True).start()
            self._work.notify()

    def finish(self, outbox: Outbox, trailers: bytes) -> None:
        """Send a last HEADERS frame after everything else."""
        with self._lock:
            if outbox.ended:
                return
            outbox.ended = True
            if outbox.parts:
                outbox.end = trailers
            else:
                self._outboxes.pop(outbox.stream, None)
                self._write([trailers])

    def drop(self, stream: int) -> None:
        """Drop a stream that the client has cancelled."""
        with self._lock:
            outbox = self._outboxes.pop(stream, None)
            if outbox is not None:
                outbox.ended = True
                outbox.parts.clear()
                outbox.end = None

    def widen(self, stream: int, increment: int) -> None:
        """Apply a WINDOW_UPDATE of a stream, or of the connection (0)."""
        with self._lock:
            if stream == 0:
                self._window += increment
            elif (outbox := self._outboxes.get(stream)) is not None:
                outbox.window += increment
            if self._waiting:
                self._work.notify()

    def apply(self, setting: int, value: int) -> None:
        """Apply a setting of the client."""
        with self._lock:
            if setting == wire.Setting.INITIAL_WINDOW_SIZE:
                for outbox in self._outboxes.values():
                    outbox.window += value - self._stream_window
                self._stream_window = value
                self._work.notify()
            elif setting == wire.Setting.MAX_FRAME_SIZE:
                self._frame_limit = value

    def close(self) -> None:
        """End the writer thread; nothing is sent any more."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._outboxes.clear()
            self._work.notify()

    # Everything below is called with the lock held, except _run, which takes it.

    def _run(self) -> None:
        while True:
            with self._lock:
                outbox = self._next()
                while outbox is None and not self._closed:
                    self._work.wait()
                    outbox = self._next()
                if outbox is None:
                    return
                self._send_turn(outbox)

    def _next(self) -> Outbox | None:
        """Pick the next outbox, round-robin, that has data and an open window."""
        for _ in range(len(self._waiting)):
            outbox = self._waiting.popleft()
            if not outbox.parts:
                continue
            self._waiting.append(outbox)
            if min(outbox.window, self._window) > 0:
                return outbox
        return None

    def _send_turn(self, outbox: Outbox) -> None:
        room = min(outbox.window, self._window, _TURN)
        taken: list[Bytes] = []
        while room and outbox.parts:
            part = outbox.parts.popleft()
            if len(part) > room:
                view = memoryview(part)
                outbox.parts.appendleft(view[room:])
                part = view[:room]
            taken.append(part)
            room -= len(part)
        framed = self._framed(outbox, taken)
        if not outbox.parts and outbox.end is not None:
            framed.append(outbox.end)
            self._outboxes.pop(outbox.stream, None)
        self._write(framed)

    def _framed(self, outbox: Outbox, parts: list[Bytes]) -> list[Bytes]:
        """Frame `parts` as DATA, and subtract their size from the windows."""
        size = sum(map(len, parts))
        outbox.window -= size
        self._window -= size
        if size <= self._frame_limit:
            return [wire.frame_head(size, FrameType.DATA, 0, outbox.stream), *parts]
        framed: list[Bytes] = []
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), self._frame_limit):
                piece = view[start : start + self._frame_limit]
                framed += (wire.frame_head(len(piece), FrameType.DATA, 0, outbox.stream), piece)
        return framed

    def _write(self, parts: list[Bytes]) -> None:
        if self._collecting == threading.get_ident():
            self._collected += parts
            return
        if self._collected:
            parts = [*self._collected, *parts]
            self._collected.clear()
        # The reading thread notices a client that is gone, and ends the connection.
        with contextlib.suppress(OSError):
            while parts:
                sent = self._socket.sendmsg(parts[:_MOST_PARTS])
                while parts and sent >= len(parts[0]):
                    sent -= len(parts[0])
                    del parts[0]
                if sent:
                    parts[0] = memoryview(parts[0])[sent:]


_MOST_PARTS = 512
"""Buffers per system call; within IOV_MAX of every supported system."""
