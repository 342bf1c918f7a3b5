"""A command that runs beside a container's own process, for ``kubectl exec`` and exec probes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Awaitable, Callable, Sequence

from pathways_jupyter.local.node.spawner import Process

_BUFFER = 256 * 1024

Start = Callable[[Sequence[int]], Awaitable[Process]]
"""Starts the command on three descriptors; they are one terminal if it has one."""


class Exec:
    """A running command with its streams.

    Create one with :meth:`start`.
    """

    def __init__(self) -> None:
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout = asyncio.StreamReader(limit=_BUFFER)
        self.stderr: asyncio.StreamReader | None = None
        self._process: Process
        self._terminal = -1

    @classmethod
    async def start(cls, start: Start, *, stdin: bool, tty: bool) -> Exec:
        """Start a command: `start` gets the descriptors, and decides which command.

        Raises:
          LocalClusterError: The cluster is shutting down.
        """
        execution = cls()
        await (execution._on_terminal(start) if tty else execution._on_pipes(start, stdin))
        return execution

    async def wait(self) -> int:
        """Wait for the exit code; 128 + signal when a signal ended it."""
        return await self._process.wait()

    def resize(self, width: int, height: int) -> None:
        """Set the size of the command's terminal; no-op without one."""
        if self._terminal >= 0:
            with contextlib.suppress(OSError, struct.error):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def kill(self) -> None:
        """End the command and its process group at once."""
        self._process.send_signal(signal.SIGKILL, group=True)

    async def _on_pipes(self, start: Start, stdin: bool) -> None:
        output, output_write = os.pipe()
        errors, errors_write = os.pipe()
        theirs = [output_write, errors_write]
        if stdin:
            source, own = os.pipe()
            self.stdin = await _writer(own)
        else:
            source = os.open(os.devnull, os.O_RDONLY)
        theirs.append(source)
        self.stderr = asyncio.StreamReader(limit=_BUFFER)
        await _read(self.stdout, output)
        await _read(self.stderr, errors)
        try:
            self._process = await start((source, output_write, errors_write))
        finally:
            # While this process has copies, the output never ends for the readers.
            for descriptor in theirs:
                os.close(descriptor)

    async def _on_terminal(self, start: Start) -> None:
        own, theirs = os.openpty()
        try:
            self._process = await start((theirs, theirs, theirs))
        finally:
            os.close(theirs)
        # Reader, writer and resize get a descriptor each, because each closes its own.
        self._terminal = os.dup(own)
        self._process.ended.add_done_callback(self._close_terminal)
        self.stdin = await _writer(os.dup(own))
        await _read(self.stdout, own)

    def _close_terminal(self, _ended: object) -> None:
        os.close(self._terminal)
        self._terminal = -1


class _Output(asyncio.StreamReaderProtocol):
    """Reader of a terminal, which reports the end of its last process as an input/output error."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None if isinstance(exc, OSError) else exc)


async def _read(reader: asyncio.StreamReader, descriptor: int) -> None:
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: _Output(reader), pipe)


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(descriptor, "wb", buffering=0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
