"""Connections to a port of a pod, through the API server.

Each local connection gets a WebSocket of its own (``v4.channel.k8s.io``), so none waits for another, and bytes are
handed on in the pieces in which they come. Either side that reads slowly makes the other side wait: what is held in
between is bounded by the buffers of the two sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.http import READ_BYTES
from pathways_jupyter.kube.podport import HEADROOM, PortRefused, Remote, Target
from pathways_jupyter.kube.websocket import WRITE_BUFFER_BYTES

__all__ = ["Forward", "PortRefused", "Target", "listen"]

GREETING_SECONDS = 1.0

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.25


class Forward:
    """A local socket whose connections all lead to one port of one pod; made by :func:`listen`.

    Attributes:
      target: Where connections lead.
      address: The socket's path, or ``host:port``.
      connections: How many are open now.
    """

    def __init__(self, target: Target, on_failure: Callable[[ClusterError], None] | None) -> None:
        self.target = target
        self.address = ""
        self.connections = 0
        self._on_failure = on_failure
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._ready: Remote | None = None
        self._open: set[_Local] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def prepare(self, *, patience: float = 0.0) -> None:
        """Opens the first connection ahead, which shows that the way is free; the next local connection gets it.

        Returns when the program in the pod has said something, or after :data:`GREETING_SECONDS` in silence.

        Args:
          patience: Seconds for which a port that is refused is tried again: programs start, and then listen.

        Raises:
          PortRefused: Nothing listens on the port.
          ApiError: The pod is gone, or forwarding is forbidden.
          ClusterError: The server could not be reached.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + patience, _FIRST_PAUSE_SECONDS
        while True:
            try:
                remote = await self._greeted()
                break
            except PortRefused:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        before, self._ready = self._ready, remote
        if before is not None:
            before.close()

    async def _greeted(self) -> Remote:
        remote = await Remote.open(self.target)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GREETING_SECONDS):
                    await remote.greeted.wait()
            if remote.error is not None:
                raise remote.error
        except BaseException:
            remote.close()
            raise
        return remote

    async def close(self) -> None:
        """Stops listening and ends every connection."""
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
        """Connects a new local connection; called by it."""
        self._open.add(local)
        self.connections = len(self._open)
        remote, self._ready = self._ready, None
        if remote is not None and not remote.ended:
            local.join(remote)
            return
        task = asyncio.get_running_loop().create_task(self._connect(local))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def finished(self, local: _Local, error: ClusterError | None) -> None:
        """Forgets a local connection; called by it."""
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
) -> Forward:
    """Listens on a unix socket (`path`), or on a TCP port of this machine.

    Args:
      path: Where to make the socket; its directory must be private.
      port: 0 takes a free one.
      on_failure: Called with the reason when a connection could not be made, or was lost.

    Raises:
      ClusterError: The path or the port is taken.
    """
    forward = Forward(target, on_failure)
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
    """The near half of a connection."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
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
        # Until there is somebody to send it to.
        self._transport.pause_reading()
        self._forward.accepted(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See :class:`asyncio.BufferedProtocol`."""
        return self._buffer[HEADROOM + self._early :]

    def buffer_updated(self, nbytes: int) -> None:
        """See :class:`asyncio.BufferedProtocol`."""
        if self._remote is not None:
            self._remote.send(self._buffer, HEADROOM, HEADROOM + nbytes)
        else:
            # uvloop begins to read only after connection_made, and so forgets that it was told to pause there.
            self._early += nbytes
            self.hold()

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
            self._remote.hold()

    def resume_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        if self._remote is not None:
            self._remote.go_on()

    def join(self, remote: Remote) -> None:
        """Connects this half with the far one."""
        if self._transport is None:
            remote.close()
            return
        self._remote = remote
        if self._early:
            remote.send(self._buffer, HEADROOM, HEADROOM + self._early)
            self._early = 0
        remote.join(self)
        self.go_on()

    def holds_bytes(self) -> bool:
        """Whether bytes given to :meth:`write` have not left yet."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def write(self, data: memoryview | bytes) -> None:
        """Hands bytes of the pod to the local program."""
        if self._transport is not None:
            self._transport.write(data)

    def hold(self) -> None:
        """Makes the local program wait."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Takes bytes from the local program again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def remote_closed(self, error: ClusterError | None) -> None:
        """Ends this half after the far one: properly, or as brokenly as that one ended."""
        if error is not None:
            self.fail(error)
        elif self._transport is not None:
            self._transport.close()

    def fail(self, error: ClusterError) -> None:
        """Ends this half, so that the local program sees a broken connection and not a short answer."""
        self._error = self._error or error
        if self._transport is not None:
            connection = self._transport.get_extra_info("socket")
            if connection is not None and connection.family != socket.AF_UNIX:
                _reset_on_close(connection)
        self.abort()

    def abort(self) -> None:
        """Ends this half at once."""
        if self._transport is not None:
            self._transport.abort()


def _reset_on_close(connection: socket.socket) -> None:
    import struct

    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
