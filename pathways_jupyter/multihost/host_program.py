"""The program on a host, sent as text: requests go in as frames, lines of JSON and bytes come back."""

from __future__ import annotations

import asyncio
import functools
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pathways_jupyter.base import packages
from pathways_jupyter.base.text import reason
from pathways_jupyter.multihost.errors import HostUnreachable, RemoteHostError
from pathways_jupyter.multihost.targets import Target

PACKAGE = "pathways_jupyter.multihost.remote"
MODULES = ("step", "sync", "processes", "keeper", "request_loop")
_BOOTSTRAP = f"""{packages.LOADER}
import json, os, select, zlib
def take():
    data, size = b"", 4
    while len(data) < size:
        if not select.select([0], [], [], 3600)[0]:
            sys.exit(0)
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit(0)
        data += piece
        size = 4 + int.from_bytes(data[:4], "big") if len(data) >= 4 else 4
    return json.loads(zlib.decompress(data[4:]))
load("{PACKAGE}", take()).main(take)
"""
"""The argument of ``python3 -c`` on a host; it reads the program from its standard input and runs it.

A client may wait long for its other hosts, but one that is silent for an hour has gone.
"""
_ANSWER_SECONDS, _COMPARE_SECONDS = 60.0, 600.0
_HINTS = {
    "full": "Free space there, or send less: --exclude.",
    "directory": "Run once without --use-existing-folder, so that it is sent.",
}


class RemoteProcess(Protocol):
    """A running program on a host, with bytes in and out.

    Its methods raise :class:`~pathways_jupyter.multihost.errors.HostUnreachable` when the connection is lost.
    """

    async def write(self, data: bytes) -> None:
        """Send `data` to the program; waits while the connection is full."""

    async def read(self) -> bytes:
        """Return what the program has written; empty at its end."""

    async def close(self) -> None:
        """Close the program's input and output, which ends it."""

    async def complaint(self) -> bytes:
        """Return what the program wrote to its standard error, once its output has ended."""


class Connection(Protocol):
    """A connection to a host that starts programs there."""

    async def start(self, command: list[str]) -> RemoteProcess:
        """Start a program, given as its arguments.

        Raises:
          RemoteHostError: It cannot be started.
          HostUnreachable: The connection is lost.
        """

    async def close(self) -> None:
        """Close the connection; a run on the host goes on."""


Connect = Callable[[Target], Awaitable[Connection]]


def frame(value: Any) -> bytes:
    """Return `value` as the programs on hosts read it: a length, and compressed JSON."""
    packed = zlib.compress(json.dumps(value).encode(), 1)
    return len(packed).to_bytes(4, "big") + packed


@functools.cache
def _sources() -> bytes:
    return frame(packages.sources(PACKAGE, MODULES))


class Program:
    """A program that runs on a host, and does one step after another.

    Attributes:
      connection: It may run other programs beside this one.
      answered: Whether it has written anything; connecting alone is no progress.
    """

    def __init__(self, target: Target, connection: Connection, channel: RemoteProcess) -> None:
        self.target, self.connection = target, connection
        self.answered = False
        self.write, self.close = channel.write, channel.close
        self._channel = channel
        self._received = bytearray()

    @classmethod
    async def start(cls, target: Target, connection: Connection) -> Program:
        """Start it on a host; the connection stays open also when that fails.

        Raises:
          RemoteHostError: It cannot be started.
          HostUnreachable: The connection is lost.
        """
        channel = await connection.start(["python3", "-I", "-S", "-c", _BOOTSTRAP])
        try:
            await channel.write(_sources())
        except BaseException:
            await channel.close()
            raise
        return cls(target, connection, channel)

    async def ask(self, step: str, *frames: bytes, **values: Any) -> dict[str, Any]:
        """Begin a step of ``remote/request_loop.py``, and return its first answer; raises as :meth:`answer` does.

        Args:
          frames: What the step reads after its request.
        """
        seconds = _COMPARE_SECONDS if step == "sync" else _ANSWER_SECONDS
        try:
            async with asyncio.timeout(seconds):
                await self.write(b"".join((frame({"step": step, **values}), *frames)))
                return await self.answer()
        except TimeoutError as error:
            raise HostUnreachable(
                f"{self.target.name} did not answer in {seconds:.0f} s.",
                hint="Check that its home directory can be read, and that its login scripts end.",
            ) from error

    async def answer(self) -> dict[str, Any]:
        """Return its next answer.

        Raises:
          RemoteHostError: The step has failed on the host.
          HostUnreachable: The connection is lost.
        """
        while (end := self._received.find(b"\n")) < 0:
            await self._receive_more()
        line = await self.receive(end + 1)
        try:
            message = json.loads(line)
            error = message.get("error", "")
        except (ValueError, AttributeError) as problem:
            raise RemoteHostError(
                f"{self.target.name} does not answer as expected: {line[:60]!r}.",
                hint="A login script there must print nothing when no terminal is connected.",
            ) from problem
        if error:
            path = f" ({message['path']})" if message["path"] else ""
            raise RemoteHostError(f"{self.target.name}: {message['message']}{path}.", hint=_HINTS.get(error, ""))
        return dict(message)

    async def receive(self, size: int) -> bytes:
        """Return the next `size` bytes; raises as :meth:`answer` does."""
        while len(self._received) < size:
            await self._receive_more()
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    async def _receive_more(self) -> None:
        if data := await self._channel.read():
            self.answered = True
            self._received += data
            return
        # A shell that finds no python3 has ended too, and says why; that does not get better by trying again.
        complaint = reason(await self._channel.complaint())
        name = self.target.name
        if "not found" in complaint or "No such file" in complaint:
            raise RemoteHostError(f"{name} has no python3: {complaint}.", hint="Install Python 3.9 or later there.")
        why = f": {complaint}" if complaint else ""
        raise HostUnreachable(f"The connection to {name} was lost{why}.", hint="Check the network.")
