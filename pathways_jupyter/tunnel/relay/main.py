"""The relay: keeps the connections to a proxy open while there is none to the session's supervisor.

It runs in the proxy's pod, where `container` has put it. One thread serves all sockets.

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
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass

from pathways_jupyter.tunnel.relay.proxy_stream import ProxyStream
from pathways_jupyter.tunnel.relay.sockets import READ, Sockets, dial, endpoint, listen, log, quicken, reject
from pathways_jupyter.tunnel.relay.stream import Pool
from pathways_jupyter.tunnel.relay.wire import (
    FULL,
    HELLO_BYTES,
    REFUSED,
    UNKNOWN,
    Hello,
    ProtocolError,
    Unrecoverable,
    Welcome,
)

MAX_STREAMS = 32
MAX_UNAUTHENTICATED = 32
"""Connections that have not said their hello yet; more close the oldest."""
POOL_BLOCKS, STREAM_BLOCKS = 40, 32
"""Memory for what the supervisor has not acknowledged: 10 MB in all, 8 MB for one stream."""
HELLO_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""The supervisor pings; a carrier on which nothing arrives for so long is closed."""
_TICK_SECONDS = 1.0
_ENDED_STREAMS = 1000


@dataclass(frozen=True)
class Settings:
    """Settings from the pod's spec.

    Attributes:
      digest: SHA-256 of the session's secret.
      port: Where to listen.
      target: The proxy's port.
      alive: The port that is open as long as the proxy is needed; 0 where the pod does not end with its clients.
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


class Unauthenticated:
    """A connection that has not said its hello yet."""

    def __init__(self, relay: Relay, connection: socket.socket) -> None:
        self.deadline = time.monotonic() + HELLO_SECONDS
        self.connection = connection
        self._relay = relay
        self._data = b""
        relay.sockets.watch(connection, READ, self.on_readable)

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
        self.sockets = Sockets()
        self._pool = Pool(POOL_BLOCKS, STREAM_BLOCKS)
        self._settings = settings
        self._streams: dict[bytes, ProxyStream] = {}
        self._unauthenticated: list[Unauthenticated] = []
        self._ended: deque[bytes] = deque(maxlen=_ENDED_STREAMS)
        self._last_active = time.monotonic()
        self._listener = listen(settings.port)
        self._alive = listen(settings.alive, everywhere=True) if settings.alive else None

    def run(self) -> None:
        """Serve until nothing came from the supervisor for as long as the settings say; then close all sockets."""
        self.sockets.watch(self._listener, READ, self._accept)
        if self._alive is not None:
            self.sockets.watch(self._alive, READ, self._accept_probe)
        log(f"listening on port {self._settings.port} for the proxy on port {self._settings.target}")
        tick = time.monotonic()
        while True:
            self.sockets.wait(_TICK_SECONDS)
            if time.monotonic() - tick >= _TICK_SECONDS:
                tick = time.monotonic()
                if self._is_over(tick):
                    self._close()
                    return

    def dismiss(self, client: Unauthenticated) -> None:
        """Close a connection without an answer."""
        self._unauthenticated.remove(client)
        self.sockets.close(client.connection)

    def greet(self, client: Unauthenticated, data: bytes) -> None:
        """Answer a hello."""
        try:
            hello = Hello.decode(data)
        except ProtocolError:
            self.dismiss(client)
            return
        if not hmac.compare_digest(hashlib.sha256(hello.secret).digest(), self._settings.digest):
            log("a connection without the session's secret is closed")
            self.dismiss(client)
            return
        # Also without a stream: a supervisor whose notebook does not use its devices now sends hellos only.
        self._last_active = time.monotonic()
        self._unauthenticated.remove(client)
        carrier = client.connection
        # The stream watches it, if it takes it.
        self.sockets.release(carrier)
        stream = self._streams.get(hello.stream) or self._open_stream(hello, carrier)
        if stream is None:
            return
        try:
            stream.continue_on(carrier, hello)
        except Unrecoverable as error:
            log(f"stream {hello.stream.hex()[:8]} cannot be continued: {error}")
            reject(carrier, Welcome(UNKNOWN))

    def _open_stream(self, hello: Hello, carrier: socket.socket) -> ProxyStream | None:
        """Connect a new stream to the proxy; None where that was refused."""
        if not hello.is_new or hello.received or hello.stream in self._ended:
            reject(carrier, Welcome(UNKNOWN))
            return None
        if len(self._streams) >= MAX_STREAMS:
            reject(carrier, Welcome(FULL))
            return None
        try:
            proxy = dial(self._settings.target)
        except OSError:
            reject(carrier, Welcome(REFUSED))
            return None
        stream = self._streams[hello.stream] = ProxyStream(self.sockets, self._pool, proxy)
        return stream

    def _accept(self, _events: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        quicken(connection)
        connection.setblocking(False)
        if len(self._unauthenticated) >= MAX_UNAUTHENTICATED:
            self.dismiss(self._unauthenticated[0])
        self._unauthenticated.append(Unauthenticated(self, connection))

    def _accept_probe(self, _events: int) -> None:
        with contextlib.suppress(OSError):
            assert self._alive is not None
            self._alive.accept()[0].close()

    def _close(self) -> None:
        for name, stream in list(self._streams.items()):
            self._end(name, stream)
        for client in list(self._unauthenticated):
            self.dismiss(client)
        for listener, port in ((self._listener, self._settings.port), (self._alive, self._settings.alive)):
            if listener is None:
                continue
            self.sockets.close(listener)
            if path := endpoint(port):
                os.unlink(path)

    def _is_over(self, now: float) -> bool:
        """Close what has ended or was silent for too long; return whether nothing is left to wait for."""
        for client in [each for each in self._unauthenticated if now > each.deadline]:
            self.dismiss(client)
        for name, stream in list(self._streams.items()):
            if stream.is_active:
                stream.is_active, stream.last_active = False, now
            self._last_active = max(self._last_active, stream.last_active)
            if stream.carrier is not None and now - stream.last_active > SILENT_SECONDS:
                stream.drop_carrier()
            if stream.is_over or now - stream.last_active > self._settings.keep:
                self._end(name, stream)
        return self._alive is not None and now - self._last_active > self._settings.keep

    def _end(self, name: bytes, stream: ProxyStream) -> None:
        stream.close()
        del self._streams[name]
        self._ended.append(name)


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
