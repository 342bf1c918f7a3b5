"""Forward local connections to a port of a pod, through the API server.

Each local connection gets a WebSocket of its own (``v4.channel.k8s.io``), so none waits for another, and bytes are
passed on as they arrive. There is back-pressure in both directions: when one side reads slowly, reading from the other
side pauses, so at most the write buffers of the two sockets are held in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.http import READ_BYTES
from pathways_jupyter.kube.podport import HEADROOM, PortRefused, Remote, Target
from pathways_jupyter.kube.websocket import WRITE_BUFFER_BYTES

__all__ = ["Forward", "PortRefused", "Target", "Traffic", "listen"]

GREETING_SECONDS = 1.0
"""How long :meth:`Forward.prepare` waits for the first bytes from the pod, or for an error."""

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.25


@dataclasses.dataclass
class Traffic:
    """Bytes that were carried, over all connections; a caller may use one for several forwards.

    Attributes:
      sent: To the pod.
      received: From the pod.
    """

    sent: int = 0
    received: int = 0


class Forward:
    """A local listening socket for one port of one pod; made by :func:`listen`.

    Attributes:
      target: The port that connections are forwarded to.
      address: The socket's path, or ``host:port``.
      connections: Number of open connections.
      traffic: The bytes that were carried.
    """

    def __init__(
        self, target: Target, on_failure: Callable[[ClusterError], None] | None, traffic: Traffic | None = None
    ) -> None:
        self.target = target
        self.traffic = traffic or Traffic()
        self.address = ""
        self.connections = 0
        self._on_failure = on_failure
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._ready: Remote | None = None
        self._open: set[_Local] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def prepare(self, *, patience: float = 0.0) -> None:
        """Open a connection in advance, to check that the port is reachable; the next local connection uses it.

        Returns when the first bytes arrive from the pod, or after :data:`GREETING_SECONDS` without an error.

        Args:
          patience: Seconds for which to retry a refused port: a program listens some time after its container starts.

        Raises:
          PortRefused: Nothing listens on the port.
          ApiError: The pod is gone, or forwarding is forbidden.
          ClusterError: The server could not be reached.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + patience, _FIRST_PAUSE_SECONDS
        while True:
            try:
                remote = await self._probe()
                break
            except PortRefused:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        before, self._ready = self._ready, remote
        if before is not None:
            before.close()

    async def _probe(self) -> Remote:
        # The protocol acknowledges nothing. A refusal comes fast, and a gRPC server sends its settings at once; but a
        # server that waits for its client sends nothing: no bytes in time counts as success.
        remote = await Remote.open(self.target)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GREETING_SECONDS):
                    await remote.answered.wait()
            if remote.error is not None:
                raise remote.error
        except BaseException:
            remote.close()
            raise
        return remote

    async def close(self) -> None:
        """Stop listening, abort every connection, and wait for the tasks that are still connecting."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        for local in tuple(self._open):
            local.abort()
        if self._ready is not None:
            self._ready.close()
            self._ready = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def accepted(self, local: _Local) -> None:
        """Connect `local`, a new local connection, to the pod."""
        self._open.add(local)
        self.connections = len(self._open)
        remote, self._ready = self._ready, None
        if remote is not None and not remote.ended:
            local.join(remote)
            return
        # asyncio keeps only weak references to tasks, and close() has to cancel those that still connect.
        task = asyncio.get_running_loop().create_task(self._connect(local))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def finished(self, local: _Local, error: ClusterError | None) -> None:
        """Remove `local`, which has ended; with `error` if it did not end properly."""
        self._open.discard(local)
        self.connections = len(self._open)
        if error is not None and self._on_failure is not None:
            self._on_failure(error)

    async def _connect(self, local: _Local) -> None:
        try:
            remote = await Remote.open(self.target)
        except ClusterError as error:
            local.fail(error)
            return
        local.join(remote)


async def listen(
    target: Target,
    *,
    path: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    on_failure: Callable[[ClusterError], None] | None = None,
    traffic: Traffic | None = None,
) -> Forward:
    """Listen on a unix socket (`path`), or on a TCP port of this machine.

    Args:
      path: Where to create the socket; its directory must be private.
      port: 0 for any free port.
      on_failure: Called with the reason when a connection could not be made, or was lost.
      traffic: Where to count the bytes.

    Raises:
      ClusterError: The path or the port is in use.
    """
    forward = Forward(target, on_failure, traffic)
    loop = asyncio.get_running_loop()
    try:
        if path is not None:
            forward._server = await loop.create_unix_server(lambda: _Local(forward), str(path))
            os.chmod(path, 0o600)
            forward._path, forward.address = path, str(path)
        else:
            forward._server = await loop.create_server(lambda: _Local(forward), host, port)
            forward.address = f"{host}:{forward._server.sockets[0].getsockname()[1]}"
    except OSError as error:
        where = path or f"{host}:{port}"
        raise ClusterError(
            f"Cannot listen on {where}: {error.strerror or error}.", hint="Use another port, or 0 for any free one."
        ) from error
    return forward


class _Local(asyncio.BufferedProtocol):
    """The local half of a connection."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._traffic = forward.traffic
        self._transport: asyncio.Transport | None = None
        self._remote: Remote | None = None
        self._error: ClusterError | None = None
        self._buffer = memoryview(bytearray(HEADROOM + READ_BYTES))
        self._early = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`."""
        # uvloop's transports are transports in all but name.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        # Until there is a remote half to send the bytes to.
        self._transport.pause_reading()
        self._forward.accepted(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See :class:`asyncio.BufferedProtocol`."""
        return self._buffer[HEADROOM + self._early :]

    def buffer_updated(self, nbytes: int) -> None:
        """See :class:`asyncio.BufferedProtocol`."""
        self._traffic.sent += nbytes
        if self._remote is not None:
            self._remote.send(self._buffer, HEADROOM, HEADROOM + nbytes)
        else:
            # uvloop starts reading after connection_made, and so undoes the pause there. Keep what it has read at the
            # front of the buffer for join(), and pause again.
            self._early += nbytes
            self.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None
        self._transport = None
        self._forward.finished(self, self._error)

    def pause_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        if self._remote is not None:
            self._remote.pause_reading()

    def resume_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        if self._remote is not None:
            self._remote.resume_reading()

    def join(self, remote: Remote) -> None:
        """Connect this half with the remote half."""
        if self._transport is None:
            # The local program closed its connection while the remote half was still connecting.
            remote.close()
            return
        self._remote = remote
        if self._early:
            remote.send(self._buffer, HEADROOM, HEADROOM + self._early)
            self._early = 0
        remote.join(self)
        self.resume_reading()

    def holds_bytes(self) -> bool:
        """See :class:`pathways_jupyter.kube.podport.Near`."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def write(self, data: memoryview | bytes) -> None:
        """Write bytes from the pod to the local program."""
        self._traffic.received += len(data)
        if self._transport is not None:
            self._transport.write(data)

    def pause_reading(self) -> None:
        """Stop reading from the local program."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read from the local program."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def remote_closed(self, error: ClusterError | None) -> None:
        """End this half like the remote one: properly, or with an error."""
        if error is not None:
            self.fail(error)
        elif self._transport is not None:
            self._transport.close()

    def fail(self, error: ClusterError) -> None:
        """End this half with a reset, so that the local program does not take a short answer for a complete one."""
        self._error = self._error or error
        if self._transport is not None:
            connection = self._transport.get_extra_info("socket")
            if connection is not None and connection.family != socket.AF_UNIX:
                # Linger of zero seconds: closing sends a TCP reset.
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    def abort(self) -> None:
        """End this half at once; unsent bytes are dropped."""
        if self._transport is not None:
            self._transport.abort()
