"""Forward local connections to a port of a pod, through the API server.

Each local connection gets a WebSocket of its own (``v4.channel.k8s.io``), so none waits for another. There is
back-pressure in both directions: when one side reads slowly, reading from the other side pauses, so at most the buffers
of the two sockets are held in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import socket
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, ConnectionLost
from pathways_jupyter.tunnel.carrier import Carrier, PodPort
from pathways_jupyter.tunnel.local_connection import LocalConnection
from pathways_jupyter.tunnel.multiplexer import StreamChannel
from pathways_jupyter.tunnel.resumable_stream import ResumableStream

GREETING_SECONDS = 1.0
"""Longest time that :meth:`Forward.prepare` waits for the first bytes from the pod, or for an error."""

_LOOPBACK = "127.0.0.1"


@dataclasses.dataclass
class Traffic:
    """Bytes that were carried, over all connections; a caller may use one for several forwards.

    Attributes:
      sent: To the pod.
      received: From the pod.
    """

    sent: int = 0
    received: int = 0


Stream = Carrier | ResumableStream | StreamChannel
"""The other side of one local connection: a carrier, a stream that has many in turn, or a channel of a stream."""
OpenStream = Callable[[], Awaitable[Stream]]
"""Opens a stream to the pod; raises ClusterError."""
MakeConnection = Callable[[Callable[[LocalConnection], None]], LocalConnection]
"""Makes the object for a local connection, which is called with it once that is there."""


class Forward:
    """A local listening socket for one port of one pod; made by :func:`listen`.

    Attributes:
      address: The socket's path, or ``host:port``.
      traffic: The bytes that were carried.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        on_failure: Callable[[ClusterError], None] | None,
        traffic: Traffic | None,
    ) -> None:
        self._open = open_stream
        self.traffic = traffic or Traffic()
        self.address = ""
        self._on_failure = on_failure
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._ready: Stream | None = None
        self._tasks: dict[asyncio.Task[ClusterError | None], LocalConnection] = {}

    @property
    def connections(self) -> Collection[LocalConnection]:
        """The local connections that there are."""
        return self._tasks.values()

    async def prepare(self) -> None:
        """Open a connection in advance, to check that the port is reachable; the next local connection uses it.

        Returns when the first bytes arrive from the pod, or after :data:`GREETING_SECONDS` without an error.

        Raises:
          PortRefused: Nothing listens on the port.
          ApiError: The pod is gone, or forwarding is forbidden.
          ClusterError: The server could not be reached.
        """
        # The protocol acknowledges nothing. A refusal comes fast, and a gRPC server sends its settings at once; but a
        # server that waits for its client sends nothing: no bytes in time counts as success.
        stream = await self._open()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GREETING_SECONDS):
                    await stream.answered.wait()
            if stream.error is not None:
                raise stream.error
        except BaseException:
            stream.close()
            raise
        before, self._ready = self._ready, stream
        if before is not None:
            before.close()

    async def finish(self, seconds: float) -> None:
        """Stop listening, and close once every connection has ended by itself, or after so many seconds."""
        if self._server is not None:
            self._server.close()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        await self.close()

    async def close(self) -> None:
        """Stop listening, end every connection, and wait for their tasks."""
        # No new connections first; then the open ones end at the local side, while their tasks still live, because
        # JAX's are ended call by call (see grpc_connection.py).
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(local.end(broken=True) for local in self._tasks.values()))
        for task in tuple(self._tasks):
            task.cancel()
        if self._ready is not None:
            self._ready.close()
            self._ready = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def accepted(self, local: LocalConnection) -> None:
        """Connect a new local connection to the pod."""
        # asyncio keeps only weak references to tasks, and close() has to cancel them.
        task = asyncio.get_running_loop().create_task(self._connect(local))
        self._tasks[task] = local
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[ClusterError | None]) -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.result()
        if error is not None and self._on_failure is not None:
            self._on_failure(error)

    async def _connect(self, local: LocalConnection) -> ClusterError | None:
        """Forward one local connection until one side ends, end the other one, and return what went wrong."""
        # Taken before anything is awaited: two local connections must not get the same one.
        stream, self._ready = self._ready, None
        try:
            # What was opened ahead may have ended since, and reports that to no one.
            if stream is None or stream.ended:
                stream = await self._open()
            await carry(local, stream, self.traffic)
            error = stream.error
        except ClusterError as problem:
            error = problem
        except BaseException:
            local.abort()
            raise
        finally:
            if stream is not None:
                stream.close()
        await local.end(broken=error is not None)
        return error


async def carry(local: LocalConnection, stream: Stream, traffic: Traffic) -> None:
    """Carry bytes both ways, until the pod or the local program ends its direction."""

    async def write(data: memoryview) -> None:
        traffic.received += len(data)
        # Without the local program the other direction ends, too.
        with contextlib.suppress(ConnectionError):
            await local.write(data)

    async def up() -> None:
        try:
            while data := await local.read():
                traffic.sent += len(data)
                await stream.send(data)
        except ConnectionLost:
            # The direction that receives knows the reason.
            await asyncio.wait({down})
        except ConnectionError:
            # The local program has reset its connection.
            return

    down = asyncio.ensure_future(stream.deliver(write))
    directions = {down, asyncio.ensure_future(up())}
    try:
        # A carrier has no half-close, so the end of one direction is the end of both.
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await tasks.stop(*directions)


async def join(
    stream: Stream,
    dial: Callable[[Callable[[], LocalConnection]], Awaitable[object]],
    local: MakeConnection = LocalConnection,
) -> None:
    """Carry bytes between a stream and a local connection that `dial` makes, until one of them ends; close both.

    Args:
      dial: Connects with the protocol that it is given.
      local: Makes the object for the connection.

    Raises:
      OSError: There is no local connection.
      ClusterError: The stream was lost.
    """
    accepted: asyncio.Future[LocalConnection] = asyncio.get_running_loop().create_future()
    try:
        await dial(functools.partial(local, accepted.set_result))
        connection = await accepted
        try:
            await carry(connection, stream, Traffic())
            await connection.end(broken=False)
        except BaseException:
            connection.abort()
            raise
    finally:
        stream.close()


async def dial_thread(work: Callable[[socket.socket], None], protocol: Callable[[], LocalConnection]) -> None:
    """Connect with a thread that runs `work` with its end of a connection, until that ends."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    loop.run_in_executor(None, work, theirs)
    await loop.create_unix_connection(protocol, sock=ours)


async def listen(
    target: PodPort | None,
    *,
    path: Path | None = None,
    port: int = 0,
    on_failure: Callable[[ClusterError], None] | None = None,
    traffic: Traffic | None = None,
    open_stream: OpenStream | None = None,
    local: MakeConnection = LocalConnection,
) -> Forward:
    """Listen on a unix socket (`path`), or on a TCP port of this machine.

    Args:
      target: The port; None where `open_stream` knows it.
      path: Where to create the socket; its directory must be private.
      port: 0 for any free port.
      on_failure: Called with the reason when a connection could not be made, or was lost.
      traffic: Where to count the bytes.
      open_stream: Opens the streams to the pod, instead of a carrier for each.
      local: Makes the object for each local connection.

    Raises:
      ClusterError: The path or the port is in use.
    """
    if target is not None and open_stream is None:
        open_stream = functools.partial(Carrier.open, target)
    assert open_stream is not None
    forward = Forward(open_stream, on_failure, traffic)
    loop = asyncio.get_running_loop()

    def accept() -> LocalConnection:
        return local(forward.accepted)

    # Listen last: asyncio lets one turn of the loop pass after it, and a caller that is cancelled in that turn would
    # have no server to close.
    try:
        if path is not None:
            forward._server = await loop.create_unix_server(accept, path, start_serving=False)
            # Its directory is private; this is for a caller whose directory is not.
            os.chmod(path, 0o600)
            forward._path, forward.address = path, str(path)
        else:
            forward._server = await loop.create_server(accept, _LOOPBACK, port, start_serving=False)
            forward.address = f"{_LOOPBACK}:{forward._server.sockets[0].getsockname()[1]}"
    except OSError as error:
        where = path or f"{_LOOPBACK}:{port}"
        raise ClusterError(
            f"Cannot listen on {where}: {error.strerror or error}.", hint="Use another port, or 0 for any free one."
        ) from error
    try:
        await forward._server.start_serving()
    except BaseException:
        await forward.close()
        raise
    return forward
