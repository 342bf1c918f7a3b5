"""The relay's end of one stream: its connection to the proxy, and its carrier."""

from __future__ import annotations

import itertools
import socket
import time
from collections import deque
from collections.abc import Sequence

from pathways_jupyter.tunnel.relay.sockets import READ, WRITE, Sockets, log, reject
from pathways_jupyter.tunnel.relay.stream import Pool, StreamEnd
from pathways_jupyter.tunnel.relay.wire import ACCEPTED, BLOCK_BYTES, Hello, ProtocolError

UNDELIVERED_BYTES = 5 * 1024 * 1024
"""Most bytes that wait for a proxy that does not read; more than a supervisor has unacknowledged."""
_MOST_PIECES = 16
"""For one system call."""
_SMALL_BYTES = 8 * 1024
"""Waiting pieces are joined up to this size, because an object for each byte would need more memory than the bytes."""

# One for all: what is read into it is passed on before anything else is read.
_SCRATCH = memoryview(bytearray(BLOCK_BYTES))


class ProxyStream:
    """One stream: its connection to the proxy, and its carrier, if it has one at the moment.

    Attributes:
      end: The protocol's state.
      carrier: None while the stream waits for one.
      last_active: When something arrived on a carrier, as the caller keeps it from :attr:`is_active`.
      is_active: Whether something has arrived since the caller cleared it.
    """

    def __init__(self, sockets: Sockets, pool: Pool, proxy: socket.socket) -> None:
        self.end = StreamEnd(pool)
        self.carrier: socket.socket | None = None
        self.last_active = time.monotonic()
        self.is_active = False
        self._sockets = sockets
        self._proxy: socket.socket | None = proxy
        # What the proxy has not taken yet (`stream.undelivered` counts its bytes), and the rest of a frame that the
        # carrier has not taken yet.
        self._to_proxy: deque[memoryview] = deque()
        self._to_carrier: Sequence[bytes | memoryview] = ()
        # What the two sockets are registered for.
        self._proxy_events = self._carrier_events = 0
        proxy.setblocking(False)
        self._update()

    @property
    def is_over(self) -> bool:
        """Return whether both ends have finished, and know it of each other."""
        end = self.end
        return end.is_over and end.peer_finished and not self._to_carrier and not self._to_proxy

    def continue_on(self, carrier: socket.socket, hello: Hello) -> None:
        """Continue on another carrier, unless it was overtaken.

        Raises:
          Unrecoverable: The stream cannot be continued.
        """
        answer = self.end.welcome(hello)
        if answer.code != ACCEPTED:
            reject(carrier, answer)
            return
        self.drop_carrier()
        self.carrier, self.last_active = carrier, time.monotonic()
        self._to_carrier = [answer.encode()]
        self._carrier_events = 0
        self._flush()

    def drop_carrier(self) -> None:
        """Close the carrier; the stream waits for another one."""
        if self.carrier is not None:
            self._sockets.close(self.carrier)
            self.carrier = None
            self._to_carrier = ()
            self._update()

    def close(self) -> None:
        """End the stream for good."""
        self.drop_carrier()
        self._hang_up()
        self.end.close()

    def on_proxy(self, events: int) -> None:
        """Handle the readiness of the proxy's socket."""
        assert self._proxy is not None
        out, waiting = self.end.out, self._to_proxy
        try:
            if events & ~WRITE and not out.is_full:
                data = self._proxy.recv(min(out.room, BLOCK_BYTES))
                out.write(data)
                if not data:
                    self._hang_up()
            if waiting and events & ~READ:
                sent = self._proxy.sendmsg(list(itertools.islice(waiting, _MOST_PIECES)))
                self.end.undelivered -= sent
                while waiting and sent >= len(waiting[0]):
                    sent -= len(waiting.popleft())
                if sent:
                    waiting[0] = waiting[0][sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()
        self._after_events()

    def on_carrier(self, events: int) -> None:
        """Handle the readiness of the carrier's socket."""
        assert self.carrier is not None
        if events & ~WRITE:
            try:
                count = self.carrier.recv_into(_SCRATCH)
                if not count:
                    raise ConnectionResetError
                self.is_active = True
                # Passed on together: what is read at a time is usually the end of one frame and the beginning of the
                # next.
                pieces: list[memoryview] = []
                try:
                    pieces.extend(self.end.feed(_SCRATCH[:count]))
                finally:
                    # Also before an error: they count as received.
                    self._give_to_proxy(pieces)
            except BlockingIOError:
                pass
            except (OSError, ProtocolError) as error:
                if isinstance(error, ProtocolError):
                    log(f"a carrier is closed: {error}")
                self.drop_carrier()
        self._after_events()

    def _after_events(self) -> None:
        if self.end.peer_finished and not self._to_proxy:
            # The program at the other end has closed its connection, so it will not read an answer.
            self._hang_up()
        self._flush()

    def _give_to_proxy(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Send to the proxy, and keep what it does not take."""
        if len(pieces) > _MOST_PIECES:
            pieces = [b"".join(pieces)]
        if pieces and self._proxy is not None and not self._to_proxy:
            try:
                pieces = _without(pieces, self._proxy.sendmsg(pieces))
            except BlockingIOError:
                pass
            except OSError:
                self._hang_up()
        if self._proxy is None:
            # It has hung up, and reads no more.
            return
        for piece in pieces:
            self.end.undelivered += len(piece)
            rest = bytes(piece)
            if self._to_proxy and len(self._to_proxy[-1]) + len(rest) < _SMALL_BYTES:
                rest = bytes(self._to_proxy.pop()) + rest
            self._to_proxy.append(memoryview(rest))

    def _hang_up(self) -> None:
        """Close the connection to the proxy; what it has sent is still delivered."""
        if self._proxy is not None:
            self._sockets.close(self._proxy)
            self._proxy = None
            self._to_proxy.clear()
            self.end.undelivered = 0
            self.end.finish()

    def _flush(self) -> None:
        """Send to the carrier as much as it takes, and wait for what comes next."""
        if (carrier := self.carrier) is not None:
            frame: Sequence[bytes | memoryview] | None = self._to_carrier
            try:
                while frame := frame or self.end.next():
                    frame = self._to_carrier = _without(frame, carrier.sendmsg(frame))
                    if frame:
                        # It takes no more now.
                        break
            except BlockingIOError:
                self._to_carrier = frame or ()
            except OSError:
                self.drop_carrier()
        self._update()

    def _update(self) -> None:
        """Register for the events that can be handled now: this is what makes a fast sender wait."""
        if self._proxy is not None:
            events = (0 if self.end.out.is_full else READ) | (WRITE if self._to_proxy else 0)
            if events != self._proxy_events:
                self._proxy_events = events
                self._sockets.watch(self._proxy, events, self.on_proxy)
        if self.carrier is not None:
            # Also while the proxy does not read: a ping must be answered, or the carrier looks dead.
            events = (READ if self.end.undelivered < UNDELIVERED_BYTES else 0) | (WRITE if self._to_carrier else 0)
            if events != self._carrier_events:
                self._carrier_events = events
                self._sockets.watch(self.carrier, events, self.on_carrier)


def _without(pieces: Sequence[bytes | memoryview], count: int) -> Sequence[bytes | memoryview]:
    """Return what is left of some pieces without their first `count` bytes."""
    for index, piece in enumerate(pieces):
        if count < len(piece):
            return (memoryview(piece)[count:], *pieces[index + 1 :])
        count -= len(piece)
    return ()
