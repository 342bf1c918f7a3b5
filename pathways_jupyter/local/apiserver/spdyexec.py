"""Exec over SPDY, with one SPDY stream per standard stream; kubectl's fallback where WebSockets do not pass."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from pathways_jupyter.local.apiserver.bodies import encode
from pathways_jupyter.local.apiserver.channels import CHUNK
from pathways_jupyter.local.apiserver.door import UpgradedConnection
from pathways_jupyter.local.apiserver.remotecommand import (
    Command,
    container_not_found,
    discard,
    drain_outputs,
    exit_status,
    resize,
    unstartable,
)
from pathways_jupyter.local.apiserver.runtime import ExecProcess, PodRuntime
from pathways_jupyter.local.apiserver.spdy import SpdyConnection, SpdyError, SpdyStream

PROTOCOL = "v4.channel.k8s.io"


async def exec_over_spdy(
    connection: UpgradedConnection, runtime: PodRuntime, uid: str, container: str, command: Command
) -> None:
    """Run a command in a container, with its streams on a connection that was upgraded to SPDY."""
    session = _Session(command, connection.send)
    running = asyncio.create_task(session.run(runtime, uid, container))
    try:
        incoming = asyncio.create_task(_feed(connection, session))
        await asyncio.wait({incoming, running}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (incoming, running):
            task.cancel()
        await asyncio.gather(incoming, running, return_exceptions=True)


async def _feed(connection: UpgradedConnection, session: _Session) -> None:
    with contextlib.suppress(SpdyError, OSError):
        while data := await connection.receive():
            await session.connection.feed(data)


class _Session:
    """One program, and the streams that the client has opened for it."""

    def __init__(self, command: Command, send: Callable[[bytes], Awaitable[None]]) -> None:
        self.connection = SpdyConnection(send, self._on_stream)
        self._command = command
        self._streams: dict[str, SpdyStream] = {}
        self._complete = asyncio.Event()
        self._process: asyncio.Future[ExecProcess | None] = asyncio.get_running_loop().create_future()

    async def run(self, runtime: PodRuntime, uid: str, container: str) -> None:
        """Wait for the streams, then run the program to its end."""
        # The client opens its streams one by one; the program must not start before all are there.
        await self._complete.wait()
        command, errors = self._command, self._streams["error"]
        try:
            process = await runtime.exec(uid, container, command.words, stdin=command.stdin, tty=command.tty)
        except (OSError, LookupError) as error:
            self._process.set_result(None)
            if isinstance(error, OSError):
                failure = unstartable(command.words, error)
            else:
                failure = container_not_found(container).to_object()
            await errors.write(encode(failure))
        else:
            self._process.set_result(process)
            try:
                code = await drain_outputs(self._outputs(process), process)
            finally:
                process.kill()
            await errors.write(encode(exit_status(code)))
        for stream in self._streams.values():
            await stream.close()

    def _outputs(self, process: ExecProcess) -> list[asyncio.Task[None]]:
        return [
            asyncio.create_task(_copy(source, self._streams[name]) if name in self._streams else discard(source))
            for name, source in (("stdout", process.stdout), ("stderr", process.stderr))
            if source is not None
        ]

    def _on_stream(self, stream: SpdyStream) -> bool:
        kind = stream.headers.get("streamtype", "")
        if kind not in self._command.streams or kind in self._streams:
            return False
        self._streams[kind] = stream
        stream.sink = {"stdin": self._input, "resize": self._resize}.get(kind, _ignore)
        if self._command.streams <= set(self._streams):
            self._complete.set()
        return True

    async def _input(self, piece: bytes) -> None:
        process = await self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                if piece:
                    process.stdin.write(piece)
                    await process.stdin.drain()
                else:
                    process.stdin.close()

    async def _resize(self, piece: bytes) -> None:
        process = await self._process
        if process is not None and piece:
            resize(process, piece)


async def _copy(source: asyncio.StreamReader, stream: SpdyStream) -> None:
    while data := await source.read(CHUNK):
        await stream.write(data)


async def _ignore(piece: bytes) -> None:
    """Sink of streams that only the server writes to."""
