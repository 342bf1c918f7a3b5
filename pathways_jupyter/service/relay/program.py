"""The relay: keeps the connections to a proxy open while the way to the session's supervisor is cut.

It runs in the proxy's pod, where `container` has put it. One thread serves all sockets, without copying where that can
be avoided: what the proxy sends is read into the memory from which it is sent, and from there again if need be.

A connection has to begin with a `Hello` that has the session's secret; of this the pod's spec has the hash only. Any
other connection is closed without an answer.

When no one with the secret has come for as long as the settings say, the relay closes its ports and waits to be ended.
One of these is there only to be open or closed: the proxy's liveness probe connects to it, so that the kubelet ends the
proxy, and the pod with it, also where nothing else in the cluster does.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass

from pathways_jupyter.service.relay.stream import (
    ACCEPTED,
    BLOCK_BYTES,
    FULL,
    HELLO_BYTES,
    REFUSED,
    UNKNOWN,
    Hello,
    Pool,
    ProtocolError,
    Stream,
    Unrecoverable,
    Welcome,
)

MAX_STREAMS = 32
MAX_STRANGERS = 32
"""Connections that have not said their hello yet; more close the oldest."""
POOL_BLOCKS, STREAM_BLOCKS = 40, 32
"""Memory for what the supervisor has not acknowledged: 10 MB in all, 8 MB for one stream."""
UNDELIVERED_BYTES = 5 * 1024 * 1024
"""Most bytes that wait for a proxy that does not read; more than a supervisor has unacknowledged."""
HELLO_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""The supervisor pings; a carrier on which nothing arrives for so long is closed."""
DIAL_SECONDS = 5.0
_TICK_SECONDS = 1.0
_ENDED_STREAMS = 1000


@dataclass(frozen=True)
class Settings:
    """What the pod's spec says.

    Attributes:
      digest: SHA-256 of the session's secret.
      port: Where to listen.
      target: The proxy's port.
      alive: The port that is open as long as the proxy is needed.
      keep: Seconds to keep the proxy's connections without the supervisor.
    """

    digest: bytes
    port: int
    target: int
    alive: int
    keep: float

    @classmethod
    def from_environment(cls) -> Settings:
        """Read the variables that `container` sets.

        Raises:
          KeyError, ValueError: One of them is missing, or is not what it should be.
        """
        digest = bytes.fromhex(os.environ["PATHWAYS_RELAY_SECRET_SHA256"])
        if len(digest) != hashlib.sha256().digest_size:
            raise ValueError("PATHWAYS_RELAY_SECRET_SHA256 is not the hash of a secret")
        numbers = (os.environ[f"PATHWAYS_RELAY_{name}"] for name in ("PORT", "TARGET", "ALIVE_PORT", "KEEP_SECONDS"))
        port, target, alive, keep = (float(each) for each in numbers)
        return cls(digest, int(port), int(target), int(alive), keep)


def endpoint(port: int) -> str:
    """Return the unix socket that stands for a port of this pod; empty where there are real ports.

    In an embedded cluster all pods are processes of one machine.
    """
    directory = os.environ.get("PATHWAYS_LOCAL_SOCKETS", "")
    return os.path.join(directory, str(port)) if directory else ""


class Link:
    """One stream: its connection to the proxy, and its carrier, if it has one at the moment."""

    def __init__(self, relay: Relay, proxy: socket.socket) -> None:
        self.stream = Stream(relay.pool)
        self.carrier: socket.socket | None = None
        self.last_active = time.monotonic()
        self._relay = relay
        self._proxy: socket.socket | None = proxy
        # What the proxy has not taken yet, and the rest of a frame that the carrier has not taken yet.
        self._to_proxy = bytearray()
        self._to_carrier: list[memoryview] = []
        proxy.setblocking(False)
        self._update()

    @property
    def is_over(self) -> bool:
        """Whether both ends have finished, and know it of each other."""
        stream = self.stream
        return stream.is_over and stream.peer_finished and not self._to_carrier and not self._to_proxy

    def attach(self, carrier: socket.socket, hello: Hello) -> None:
        """Continue on another carrier, unless it was overtaken.

        Raises:
          Unrecoverable: The stream cannot be continued.
        """
        answer = self.stream.welcome(hello)
        if answer.code != ACCEPTED:
            reject(carrier, answer)
            return
        self.detach()
        self.carrier, self.last_active = carrier, time.monotonic()
        self._to_carrier = [memoryview(answer.encode())]
        self._flush()

    def detach(self) -> None:
        """Close the carrier; the stream waits for another one."""
        if self.carrier is not None:
            self._relay.forget(self.carrier)
            self.carrier = None
            self._to_carrier = []
            self._update()

    def close(self) -> None:
        """End the stream for good."""
        self.detach()
        self._hang_up()
        self.stream.close()

    def on_proxy(self, events: int) -> None:
        """Handle the readiness of the proxy's socket."""
        assert self._proxy is not None
        try:
            if events & selectors.EVENT_WRITE:
                sent = self._proxy.send(self._to_proxy)
                del self._to_proxy[:sent]
                self.stream.undelivered = len(self._to_proxy)
            if events & selectors.EVENT_READ and (space := self.stream.space()):
                count = self._proxy.recv_into(space)
                self.stream.filled(count)
                if not count:
                    self._hang_up()
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()
        if self.stream.peer_finished and not self._to_proxy:
            # The program at the other end has closed its connection, so it will not read an answer.
            self._hang_up()
        self._flush()

    def on_carrier(self, events: int) -> None:
        """Handle the readiness of the carrier's socket."""
        assert self.carrier is not None
        if events & selectors.EVENT_READ:
            try:
                count = self.carrier.recv_into(self._relay.scratch)
                if not count:
                    raise ConnectionResetError
                self.last_active = time.monotonic()
                for piece in self.stream.feed(memoryview(self._relay.scratch)[:count]):
                    self._give_to_proxy(piece)
                self.stream.undelivered = len(self._to_proxy)
            except BlockingIOError:
                pass
            except (OSError, ProtocolError) as error:
                if isinstance(error, ProtocolError):
                    log(f"a carrier is closed: {error}")
                self.detach()
            if self.stream.peer_finished and not self._to_proxy:
                self._hang_up()
        self._flush()

    def _give_to_proxy(self, piece: memoryview) -> None:
        sent = 0
        if self._proxy is not None and not self._to_proxy:
            try:
                sent = self._proxy.send(piece)
            except BlockingIOError:
                pass
            except OSError:
                self._hang_up()
        if self._proxy is not None:
            # Once a proxy has hung up, this is not read any more.
            self._to_proxy += piece[sent:]

    def _hang_up(self) -> None:
        """Close the connection to the proxy; what it has sent is still delivered."""
        if self._proxy is not None:
            self._relay.forget(self._proxy)
            self._proxy = None
            self._to_proxy.clear()
            self.stream.undelivered = 0
            self.stream.finish()

    def _flush(self) -> None:
        """Send to the carrier as much as it takes, and wait for what comes next."""
        while self.carrier is not None:
            if not self._to_carrier:
                frame = self.stream.next()
                if frame is None:
                    break
                self._to_carrier = [memoryview(frame[0]), frame[1]]
            try:
                sent = self.carrier.sendmsg(self._to_carrier)
            except BlockingIOError:
                break
            except OSError:
                self.detach()
                break
            while self._to_carrier and sent >= len(self._to_carrier[0]):
                sent -= len(self._to_carrier.pop(0))
            if sent:
                self._to_carrier[0] = self._to_carrier[0][sent:]
        self._update()

    def _update(self) -> None:
        """Register for the events that can be handled now: this is what makes a fast sender wait."""
        if self._proxy is not None:
            reads = selectors.EVENT_READ if self.stream.space() else 0
            self._relay.watch(self._proxy, reads | (selectors.EVENT_WRITE if self._to_proxy else 0), self.on_proxy)
        if self.carrier is not None:
            # Also while the proxy does not read: a ping must be answered, or the carrier looks dead.
            reads = selectors.EVENT_READ if len(self._to_proxy) < UNDELIVERED_BYTES else 0
            self._relay.watch(self.carrier, reads | (selectors.EVENT_WRITE if self._to_carrier else 0), self.on_carrier)


class Stranger:
    """A connection that has not said its hello yet."""

    def __init__(self, relay: Relay, connection: socket.socket) -> None:
        self.deadline = time.monotonic() + HELLO_SECONDS
        self.connection = connection
        self._relay = relay
        self._data = b""
        relay.watch(connection, selectors.EVENT_READ, self.on_readable)

    def on_readable(self, _events: int) -> None:
        """Read no more than the hello: what follows is the stream's."""
        try:
            data = self.connection.recv(HELLO_BYTES - len(self._data))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._data += data
        if not data:
            self._relay.dismiss(self)
        elif len(self._data) == HELLO_BYTES:
            self._relay.greet(self, self._data)


class Relay:
    """All sockets and streams."""

    def __init__(self, settings: Settings) -> None:
        self.pool = Pool(POOL_BLOCKS, STREAM_BLOCKS)
        self.scratch = bytearray(BLOCK_BYTES)
        self._settings = settings
        self._selector = selectors.DefaultSelector()
        # What each socket is registered for: changing a registration costs a system call.
        self._watched: dict[socket.socket, int] = {}
        self._links: dict[bytes, Link] = {}
        self._strangers: list[Stranger] = []
        self._ended: deque[bytes] = deque(maxlen=_ENDED_STREAMS)
        self._last_active = time.monotonic()
        self._listener = listen(settings.port)
        self._alive = listen(settings.alive, everywhere=True)

    def run(self) -> None:
        """Serve until nothing came from the supervisor for as long as the settings say; then close all sockets."""
        self.watch(self._listener, selectors.EVENT_READ, self._accept)
        self.watch(self._alive, selectors.EVENT_READ, self._accept_probe)
        log(f"listening on port {self._settings.port} for the proxy on port {self._settings.target}")
        tick = time.monotonic()
        while True:
            for key, events in self._selector.select(_TICK_SECONDS):
                # An earlier one of these events may have closed this socket.
                if key.fileobj in self._watched:
                    key.data(events)
            if time.monotonic() - tick >= _TICK_SECONDS:
                tick = time.monotonic()
                if self._is_over(tick):
                    self._close()
                    return

    def watch(self, connection: socket.socket, events: int, call: object) -> None:
        """Call `call` with the events of `connection`, instead of what was registered for it."""
        known = self._watched.get(connection)
        if known is None:
            self._watched[connection] = 0
        if events == (known or 0):
            return
        if not known:
            self._selector.register(connection, events, call)
        elif not events:
            self._selector.unregister(connection)
        else:
            self._selector.modify(connection, events, call)
        self._watched[connection] = events

    def forget(self, connection: socket.socket) -> None:
        """Close a socket."""
        if self._watched.pop(connection, 0):
            self._selector.unregister(connection)
        connection.close()

    def dismiss(self, stranger: Stranger) -> None:
        """Close a connection without an answer."""
        self._strangers.remove(stranger)
        self.forget(stranger.connection)

    def greet(self, stranger: Stranger, data: bytes) -> None:
        """Answer a hello."""
        try:
            hello = Hello.decode(data)
        except ProtocolError:
            self.dismiss(stranger)
            return
        if not hmac.compare_digest(hashlib.sha256(hello.secret).digest(), self._settings.digest):
            log("a connection without the session's secret is closed")
            self.dismiss(stranger)
            return
        # Also without a stream: a supervisor whose notebook does not use its devices now sends hellos only.
        self._last_active = time.monotonic()
        self._strangers.remove(stranger)
        carrier = stranger.connection
        # The link registers its own callback.
        self.watch(carrier, 0, None)
        link = self._links.get(hello.stream) or self._new_link(hello, carrier)
        if link is None:
            self._watched.pop(carrier, None)
            return
        try:
            link.attach(carrier, hello)
        except Unrecoverable as error:
            log(f"stream {hello.stream.hex()[:8]} cannot be continued: {error}")
            reject(carrier, Welcome(UNKNOWN))
        if link.carrier is not carrier:
            self._watched.pop(carrier, None)

    def _new_link(self, hello: Hello, carrier: socket.socket) -> Link | None:
        """Connect a new stream to the proxy; None where that was refused."""
        if not hello.is_new or hello.received or hello.stream in self._ended:
            reject(carrier, Welcome(UNKNOWN))
            return None
        if len(self._links) >= MAX_STREAMS:
            reject(carrier, Welcome(FULL))
            return None
        try:
            proxy = dial(self._settings.target)
        except OSError:
            reject(carrier, Welcome(REFUSED))
            return None
        link = self._links[hello.stream] = Link(self, proxy)
        return link

    def _accept(self, _events: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        quicken(connection)
        connection.setblocking(False)
        if len(self._strangers) >= MAX_STRANGERS:
            self.dismiss(self._strangers[0])
        self._strangers.append(Stranger(self, connection))

    def _accept_probe(self, _events: int) -> None:
        with contextlib.suppress(OSError):
            self._alive.accept()[0].close()

    def _close(self) -> None:
        for name, link in list(self._links.items()):
            self._end(name, link)
        for stranger in list(self._strangers):
            self.dismiss(stranger)
        for listener, port in ((self._listener, self._settings.port), (self._alive, self._settings.alive)):
            self.forget(listener)
            if path := endpoint(port):
                os.unlink(path)

    def _is_over(self, now: float) -> bool:
        """Close what has ended or was silent for too long; return whether nothing is left to wait for."""
        for stranger in [each for each in self._strangers if now > each.deadline]:
            self.dismiss(stranger)
        for name, link in list(self._links.items()):
            self._last_active = max(self._last_active, link.last_active)
            if link.carrier is not None and now - link.last_active > SILENT_SECONDS:
                link.detach()
            if link.is_over or now - link.last_active > self._settings.keep:
                self._end(name, link)
        return now - self._last_active > self._settings.keep

    def _end(self, name: bytes, link: Link) -> None:
        link.close()
        del self._links[name]
        self._ended.append(name)


def listen(port: int, *, everywhere: bool = False) -> socket.socket:
    """Listen on the loopback interface, where port-forwarding arrives, or on all of them."""
    if path := endpoint(port):
        if os.path.exists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
    elif everywhere and socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    elif everywhere:
        listener = socket.create_server(("", port))
    else:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
    listener.listen(MAX_STRANGERS)
    listener.setblocking(False)
    return listener


def dial(port: int) -> socket.socket:
    """Connect to the proxy.

    Raises:
      OSError: It does not listen.
    """
    path, host = endpoint(port), "127.0.0.1"
    if path and not os.path.exists(path):
        # Not every program of an embedded cluster listens on a socket.
        path, host = "", os.environ.get("POD_IP", host)
    if path:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(DIAL_SECONDS)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            raise
        return connection
    connection = socket.create_connection((host, port), timeout=DIAL_SECONDS)
    quicken(connection)
    return connection


def quicken(connection: socket.socket) -> None:
    """Send small messages at once."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def reject(carrier: socket.socket, answer: Welcome) -> None:
    """Send an answer that accepts nothing, and close the connection."""
    try:
        # A new connection's buffer always has room for it.
        carrier.send(answer.encode())
    except OSError:
        pass
    finally:
        carrier.close()


def log(message: str) -> None:
    """Write a line to the container's log."""
    print(time.strftime("%H:%M:%S"), message, flush=True)


def main() -> int:
    """Run the relay until it is ended."""
    # The first process of a container gets no default handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        settings = Settings.from_environment()
    except (KeyError, ValueError) as error:
        log(f"not started: {error!r}")
        return 2
    Relay(settings).run()
    log(f"closed: nothing came from the session for {settings.keep:.0f} s, so the proxy is not needed any more")
    while True:
        # An exit would only begin a new relay.
        signal.pause()
