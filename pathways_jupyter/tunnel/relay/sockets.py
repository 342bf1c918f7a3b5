"""The relay's sockets: where they listen and connect to, and one loop for all of them."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable

from pathways_jupyter.tunnel.relay.wire import BLOCK_BYTES, Welcome

READ, WRITE = select.POLLIN, select.POLLOUT
"""Events that a socket can be watched for; that its other end has gone is reported in any case, with other bits."""
BACKLOG = 32
DIAL_SECONDS = 5.0


class Sockets:
    """All sockets of a process, and what is called when one of them is ready."""

    def __init__(self) -> None:
        # Without `selectors`, whose own work took a third of the time that a small message spent here. Of what is below
        # it, this one is also on macOS, where an embedded cluster may run; there are too few sockets for it to be slow.
        self._poll = select.poll()
        self._calls: dict[int, Callable[[int], None]] = {}

    def wait(self, seconds: float) -> None:
        """Call what is registered for the sockets that are ready, once some of them are, or the time is over."""
        for number, events in self._poll.poll(1000 * seconds):
            # An earlier one of these events may have closed this socket. If another one has its number by now, that
            # one finds that it is not ready.
            if call := self._calls.get(number):
                call(events)

    def watch(self, connection: socket.socket, events: int, call: Callable[[int], None]) -> None:
        """Call `call` with the events of `connection`, instead of what was registered for it."""
        if not events:
            self.release(connection)
            return
        self._poll.register(connection.fileno(), events)
        self._calls[connection.fileno()] = call

    def release(self, connection: socket.socket) -> None:
        """Watch a socket no longer."""
        if self._calls.pop(connection.fileno(), None):
            self._poll.unregister(connection.fileno())

    def close(self, connection: socket.socket) -> None:
        """Close a socket."""
        self.release(connection)
        connection.close()


def endpoint(port: int) -> str:
    """Return the unix socket that stands for a port of this pod; empty where there are real ports.

    In an embedded cluster all pods are processes of one machine.
    """
    directory = os.environ.get("PATHWAYS_LOCAL_SOCKETS", "")
    return os.path.join(directory, str(port)) if directory else ""


def listen(port: int, *, everywhere: bool = False) -> socket.socket:
    """Listen on the loopback interface, where port-forwarding arrives, or on all of them."""
    if path := endpoint(port):
        if os.path.exists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
    elif everywhere and socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listener = socket.create_server(("" if everywhere else "127.0.0.1", port))
    listener.listen(BACKLOG)
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
    else:
        connection = socket.create_connection((host, port), timeout=DIAL_SECONDS)
    quicken(connection)
    return connection


def quicken(connection: socket.socket) -> None:
    """Send small messages at once, and a large one with one call."""
    if connection.family == socket.AF_UNIX:
        # Usually less than a frame; TCP's buffers grow by themselves.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * BLOCK_BYTES)
    else:
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
