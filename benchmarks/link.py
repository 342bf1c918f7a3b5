"""A network link to an API server on this machine: a delay and a rate each way, stalls, cuts, and what went over it.

A forwarder of TCP connections on loopback, in a thread of its own. It is a link as a laptop has one: all connections
share its rate, and a router's queue before it is bounded, so that a sender has to wait when the queue is full. A
connection begins with one round trip, as TCP's handshake does.

The forwarder cannot read what TLS encrypts, and need not: on each connection client and server answer each other, so
an *exchange* begins when the client sends something, and ends when the next bytes reach it that can be the answer. The
longest chain of exchanges of which each began after the last one had ended is the number of *stages*: what the client
had to wait for, one after the other, however fast this machine is. The end of TLS's handshake begins none: no client
waits for the session tickets that answer it. Nor do pings: they pass at all times, and more of them where a machine is
slow.

JAX holds Python's lock while it waits for some answers, so a link in JAX's own process would wait for itself: run one
of the two in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

_PIECE_BYTES = 64 * 1024
_PIECES_IN_FLIGHT = 256
"""Most pieces of a connection that are under way each way; with more the receiver is slower than the link."""
_BUFFER_BYTES = 64 * 1024
"""Kernel buffer of each connection of a link with a rate, so that a sender sees its queue."""
_UNANSWERED_BYTES = {0x14: 80, 0x17: 29}
"""Bytes of the longest TLS records whose answer no client waits for, by their first byte: the end of a handshake (what
middleboxes wait for, and `Finished`), and of application data a WebSocket's ping, or that the connection is closed."""
_BACKLOG = 128
_CALL_SECONDS = 30.0


def _ignore(_at: float) -> None:
    """Note nothing."""


@dataclass
class Exchange:
    """Bytes that a client sent, and when the first bytes of the answer reached it, in seconds of one clock."""

    began: float
    ended: float


@dataclass
class Traffic:
    """Bytes and requests over a link since :meth:`Link.count`.

    Attributes:
      connections: Connections that were opened; each has one TLS handshake.
      exchanges: Those that have ended: handshakes of TCP and TLS, and requests.
    """

    connections: int = 0
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def stages(self) -> int:
        """Length of the longest chain of exchanges, each of which began after the last one had ended."""
        count, ended = 0, float("-inf")
        for exchange in sorted(self.exchanges, key=lambda each: each.ended):
            if exchange.began >= ended:
                count, ended = count + 1, exchange.ended
        return count

    @property
    def requests(self) -> int:
        """Exchanges that are no handshakes: requests, messages of WebSockets that were answered."""
        return max(0, len(self.exchanges) - 2 * self.connections)


class Link:
    """A link to the API server of a kubeconfig.

    Args:
      kubeconfig: Of the cluster; :meth:`write` writes one that leads over this link.
      delay: Seconds that each byte takes, each way.
      up, down: Bytes a second to and from the server; None is as fast as this machine.
      queue: Bytes that may wait for the rate, each way.
    """

    def __init__(
        self,
        kubeconfig: Path,
        *,
        delay: float = 0.0,
        up: float | None = None,
        down: float | None = None,
        queue: int = 256 * 1024,
    ) -> None:
        self._content = kubeconfig.read_text()
        found = re.search(r"https://([0-9.]+):(\d+)", self._content)
        assert found is not None
        self._server, self._target = found[0], (found[1], int(found[2]))
        self._lanes = _Lane(delay, up, queue), _Lane(delay, down, queue)
        self._loop = asyncio.new_event_loop()
        self._listener: asyncio.Task[None] | None = None
        self._sockets: set[socket.socket] = set()
        self._gate = asyncio.Event()
        self._gate.set()
        self._forgotten: list[asyncio.Event] = []
        self._traffic = Traffic()
        self.port = 0
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self.close()

    @property
    def round_trip(self) -> float:
        """Seconds to the server and back, when nothing else is on the way."""
        return sum(lane.delay for lane in self._lanes)

    def write(self, path: Path) -> Path:
        """Write a kubeconfig that leads over this link."""
        path.write_text(self._content.replace(self._server, f"https://127.0.0.1:{self.port}"))
        path.chmod(0o600)
        return path

    def shape(self, *, delay: float = 0.0, up: float | None = None, down: float | None = None) -> None:
        """Change delay and rates for what is sent from now on."""
        for lane, rate in zip(self._lanes, (up, down), strict=True):
            self._loop.call_soon_threadsafe(lane.shape, delay, rate)

    def count(self) -> Traffic:
        """Count anew, and return what is being counted."""
        self._traffic = Traffic()
        return self._traffic

    def open(self) -> None:
        """Accept connections, at the same port as before."""
        self._call(self._open())

    def move(self) -> None:
        """Accept connections at another port from now on; previous ones are reset."""
        self.cut()
        self.port = 0
        self.open()

    def reset(self) -> None:
        """Reset all connections; new ones are accepted."""
        self._call(self._reset())

    def cut(self) -> None:
        """Reset all connections, and refuse new ones."""
        self._call(self._cut())

    def forget(self) -> None:
        """Forward nothing more on any connection that there is, without closing it; new ones are forwarded.

        As a NAT does that has restarted, or a firewall.
        """
        self._loop.call_soon_threadsafe(self._forget)

    def freeze(self) -> None:
        """Forward nothing more, without closing anything: a cable that was pulled, or Wi-Fi that stalls."""
        self._loop.call_soon_threadsafe(self._gate.clear)

    def thaw(self) -> None:
        """Forward again, also on connections that were forgotten."""
        self._loop.call_soon_threadsafe(self._thaw)

    def close(self) -> None:
        """Reset all connections, and end the thread."""
        self.cut()
        self._call(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS)

    def _forget(self) -> None:
        self._gate.clear()
        self._forgotten.append(self._gate)
        self._gate = asyncio.Event()
        self._gate.set()

    def _thaw(self) -> None:
        for gate in (*self._forgotten, self._gate):
            gate.set()
        self._forgotten.clear()

    async def _open(self) -> None:
        if self._listener is not None:
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._lanes[0].rate is not None:
            # Accepted connections inherit it.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        listener.setblocking(False)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(_BACKLOG)
        self.port = listener.getsockname()[1]
        self._listener = self._loop.create_task(self._accept(listener))

    async def _reset(self) -> None:
        for each in tuple(self._sockets):
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                # Wakes what reads or writes, which then closes it.
                each.shutdown(socket.SHUT_RDWR)

    async def _cut(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
            self._listener = None
        await self._reset()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        connections: set[asyncio.Task[None]] = set()
        with listener:
            while True:
                near, _ = await self._loop.sock_accept(listener)
                task = self._loop.create_task(self._connected(near))
                connections.add(task)
                task.add_done_callback(connections.discard)

    async def _connected(self, near: socket.socket) -> None:
        now = self._loop.time()
        traffic = self._traffic
        traffic.connections += 1
        # The client of a real link learns only then that it is connected, and sends nothing before.
        opened = now + self.round_trip
        if opened > now:
            traffic.exchanges.append(Exchange(now, opened))
        far = socket.socket()
        flows: list[asyncio.Task[None]] = []
        self._sockets |= {near, far}
        try:
            for each in (near, far):
                each.setblocking(False)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._lanes[1].rate is not None:
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            gate = self._gate
            await gate.wait()
            await self._loop.sock_connect(far, self._target)
            exchange = _Unanswered(self)
            flows = [
                self._loop.create_task(self._carry(near, far, self._lanes[0], opened, gate, sent=exchange.begin)),
                self._loop.create_task(self._carry(far, near, self._lanes[1], opened, gate, delivered=exchange.end)),
            ]
            # A side that has sent everything may still receive, as TCP allows; an error ends both.
            await asyncio.gather(*flows)
        except OSError:
            pass
        finally:
            for flow in flows:
                flow.cancel()
            await asyncio.gather(*flows, return_exceptions=True)
            for each in (near, far):
                self._sockets.discard(each)
                each.close()

    async def _carry(
        self,
        source: socket.socket,
        target: socket.socket,
        lane: _Lane,
        opened: float,
        gate: asyncio.Event,
        *,
        sent: Callable[[float], None] = _ignore,
        delivered: Callable[[float], None] = _ignore,
    ) -> None:
        """Carry one direction of a connection until its end."""
        flying: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES_IN_FLIGHT)
        delivering = self._loop.create_task(self._deliver(flying, target, gate, delivered))
        try:
            data = b"-"
            while data:
                data = await self._loop.sock_recv(source, _PIECE_BYTES)
                begun = max(opened, self._loop.time())
                if data and len(data) > _UNANSWERED_BYTES.get(data[0], 0):
                    sent(begun)
                # What is not sent is not acknowledged either.
                await gate.wait()
                await flying.put((await lane.transmit(len(data), begun), data))
            await delivering
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)

    async def _deliver(
        self,
        flying: asyncio.Queue[tuple[float, bytes]],
        target: socket.socket,
        gate: asyncio.Event,
        delivered: Callable[[float], None],
    ) -> None:
        while True:
            arrival, data = await flying.get()
            if (left := arrival - self._loop.time()) > 0:
                await asyncio.sleep(left)
            await gate.wait()
            if not data:
                break
            # First, as the receiver may be faster than this thread.
            delivered(self._loop.time())
            await self._loop.sock_sendall(target, data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


class _Lane:
    """One direction of a link, which all connections share."""

    def __init__(self, delay: float, rate: float | None, queue: int) -> None:
        self.delay, self.rate = delay, rate
        self._queue = queue
        self._free_at = 0.0

    def shape(self, delay: float, rate: float | None) -> None:
        """Change what is sent from now on."""
        self.delay, self.rate = delay, rate

    async def transmit(self, size: int, begun: float) -> float:
        """Wait for room in the queue; return when `size` bytes arrive."""
        if self.rate is None:
            return begun + self.delay
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + size / self.rate
        if (wait := self._free_at - now - self._queue / self.rate) > 0:
            # Arrives later than this anyway.
            await asyncio.sleep(wait)
        return max(begun, self._free_at) + self.delay


class _Unanswered:
    """The exchange of a connection that is going on."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._began: float | None = None

    def begin(self, at: float) -> None:
        if self._began is None:
            self._began = at

    def end(self, at: float) -> None:
        # Bytes that arrive earlier were on their way already, and answer something else; timers are not exact.
        if self._began is not None and at >= self._began + 0.9 * self._link.round_trip:
            self._link._traffic.exchanges.append(Exchange(self._began, at))
            self._began = None
