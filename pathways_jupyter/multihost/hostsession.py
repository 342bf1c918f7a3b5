"""One connection to the program on a host: requests and their answers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from pathways_jupyter.base import carried
from pathways_jupyter.multihost.errors import HostError, HostUnreachable
from pathways_jupyter.multihost.pack import Packed
from pathways_jupyter.multihost.remote.frames import Decoder, encode
from pathways_jupyter.multihost.targets import Target

if TYPE_CHECKING:
    from pathways_jupyter.multihost.remote.frames import Frame

PACKAGE = "pathways_jupyter.multihost.remote"
MODULES = ("frames", "sync", "processes", "keeper", "serve")
_BOOTSTRAP = f"""{carried.LOADER}
import json, os, zlib
data, size = b"", 4
while len(data) < size:
    piece = os.read(0, size - len(data))
    if not piece:
        sys.exit(0)
    data += piece
    size = 4 + int.from_bytes(data[:4], "big")
load("{PACKAGE}", json.loads(zlib.decompress(data[4:]))).main()
"""
"""The argument of ``python3 -c`` on a host; it reads the program from its standard input and runs it."""
_HELLO_SECONDS = 60.0
_ECHO_SECONDS = 3.0
_PING_SECONDS = 2.0
"""Much shorter than the lease of a run, so that a busy moment here ends nothing there."""
_SEND_BYTES = 256 * 1024


class Channel(Protocol):
    """A running program on a host, with bytes in and out.

    Its methods raise :class:`~pathways_jupyter.multihost.errors.HostUnreachable` when the connection is lost.
    """

    async def write(self, data: bytes) -> None:
        """Send `data` to the program; waits while the connection is full."""

    async def read(self) -> bytes:
        """Return what the program has written; empty at its end."""

    async def close(self) -> None:
        """Close the connection."""

    def complaint(self) -> str:
        """Return the last line that the program wrote to its standard error."""


Connect = Callable[[Target, list[str]], Awaitable[Channel]]
"""Start a program, given as its arguments, on a host."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended on one host.

    Attributes:
      code: Exit code; negative for a signal.
      why: ``exited``; ``stopped`` on request; ``abandoned`` when its client was gone too long; ``lost`` when its keeper
        on the host was killed.
      seconds: How long it ran; None where the host does not know.
    """

    code: int
    why: str
    seconds: float | None = None


@functools.cache
def program() -> bytes:
    """Return the program of the hosts as its first lines expect it: a length, and the compressed sources."""
    packed = zlib.compress(json.dumps(carried.sources(PACKAGE, MODULES)).encode())
    return len(packed).to_bytes(4, "big") + packed


class HostSession:
    """A connection to the program on one host. Requests are made one after another.

    Attributes:
      progressed: Whether the host has answered a request; connecting alone is no progress.
      idle: Whether it can be used for another run: every request has been answered.
    """

    def __init__(self, target: Target, channel: Channel) -> None:
        self.target = target
        self.progressed = False
        self.idle = True
        self.python = ""
        self._channel = channel
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        self._sending = asyncio.Lock()
        self._pinging: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, target: Target, connect: Connect) -> HostSession:
        """Start the program on `target`.

        Raises:
          HostUnreachable: The host cannot be reached.
          HostError: It refuses the login, or has no Python.
        """
        channel = await connect(target, ["python3", "-I", "-S", "-c", _BOOTSTRAP])
        session = cls(target, channel)
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                await channel.write(program())
                hello, _ = await session._receive("hello")
        except BaseException as error:
            await channel.close()
            if isinstance(error, TimeoutError):
                raise HostUnreachable(f"{target.name} did not answer in {_HELLO_SECONDS:.0f} s.") from None
            raise
        session.python = hello["python"]
        session.progressed = False
        session._pinging = asyncio.create_task(session._ping())
        return session

    async def close(self) -> None:
        """Close the connection; what runs on the host is not affected."""
        if self._pinging is not None:
            self._pinging.cancel()
        await self._channel.close()

    async def works(self) -> bool:
        """Whether the host answers soon; a connection that was idle may have been lost without a sign."""
        try:
            async with asyncio.timeout(_ECHO_SECONDS):
                await self._ask({"op": "echo"}, "echo")
        except (HostError, TimeoutError):
            return False
        return True

    async def missing(self, packed: Packed, directory: str, name: str) -> tuple[str, ...]:
        """Compare `packed` with `directory` on the host; return the contents that the host lacks.

        Args:
          directory: Relative to the home directory.
          name: Of this attempt and its repetitions after a lost connection.
        """
        header = {"op": "compare", "directory": directory, "name": name}
        _, payload = await self._ask(header, "missing", payload=packed.manifest)
        return tuple(json.loads(zlib.decompress(payload)))

    async def apply(self, archive: IO[bytes] | None, sent: Callable[[float], Awaitable[None]]) -> int:
        """Send what :meth:`missing` has returned, and change the directory; return the number of files written.

        Args:
          archive: See :meth:`~pathways_jupyter.multihost.pack.Archives.of`; None if nothing is missing.
          sent: Called with the share of it that has been sent.

        Raises:
          HostError: The host cannot write the files.
          HostUnreachable: The connection was lost; what has arrived is kept for the next attempt.
        """
        self.idle = False
        await self._send({"op": "apply"})
        if archive is not None:
            # Read by position, because many hosts are sent to from one file.
            file, position, size = archive.fileno(), 0, archive.seek(0, 2)
            while position < size:
                piece = os.pread(file, _SEND_BYTES, position)
                await self._send({"op": "piece"}, piece)
                position += len(piece)
                await sent(position / size)
        header, _ = await self._ask({"op": "piece"}, "applied")
        return int(header["written"])

    async def start(self, spec: dict[str, Any]) -> None:
        """Start a run; no-op if the host has started it already."""
        await self._ask({"op": "start", "spec": spec}, "started")

    async def follow(self, run: str, offset: int) -> AsyncIterator[bytes | Outcome]:
        """Yield the output of a run from the byte `offset` on, and at last its outcome."""
        self.idle = False
        await self._send({"op": "follow", "run": run, "offset": offset})
        while True:
            header, payload = await self._receive("output", "exit")
            if header.pop("op") == "exit":
                self.idle = True
                yield Outcome(**header)
                return
            yield bytes(payload)

    async def read(self, run: str, offset: int) -> bytes:
        """Return some of the output of a run from the byte `offset` on; empty if there is no more now."""
        _, payload = await self._ask({"op": "read", "run": run, "offset": offset}, "output")
        return bytes(payload)

    async def stop(self, run: str) -> None:
        """Ask the host to end a run. It has no answer: :meth:`follow` reports the end."""
        await self._send({"op": "stop", "run": run})

    async def status(self, run: str) -> tuple[bool, Outcome | None]:
        """Return whether the host knows the run, and how it ended; None while it runs."""
        header, _ = await self._ask({"op": "status", "run": run}, "status")
        return header["known"], Outcome(**header["outcome"]) if header["outcome"] else None

    async def _ask(self, header: dict[str, Any], expected: str, *, payload: bytes = b"") -> Frame:
        """Send a request, and return its answer."""
        self.idle = False
        await self._send(header, payload)
        answer = await self._receive(expected)
        self.idle = True
        return answer

    async def _send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        # One at a time: a ping must not come between the pieces of another frame.
        async with self._sending:
            await self._channel.write(encode(header, payload))

    async def _receive(self, *expected: str) -> Frame:
        """Return the next answer, which has to be one of the `expected` ones."""
        name = self.target.name
        while not self._frames:
            data = await self._channel.read()
            if not data:
                # A shell that finds no python3 has ended too, and says why; that does not get better by trying again.
                complaint = self._channel.complaint()
                if "not found" in complaint or "No such file" in complaint:
                    raise HostError(f"{name} has no python3: {complaint}.", hint="Install Python 3.9 or later there.")
                reason = f": {complaint}" if complaint else ""
                raise HostUnreachable(f"The connection to {name} was lost{reason}.", hint="Check the network.")
            try:
                self._frames.extend(self._decoder.feed(data))
            except ValueError as error:
                raise HostError(
                    f"{name} does not answer as expected: {data[:60]!r}.",
                    hint="A login script there must print nothing when no terminal is connected.",
                ) from error
        header, payload = self._frames.pop(0)
        self.progressed = True
        if header["op"] == "error":
            text = "the disk is full" if header["kind"] == "full" else header["message"]
            hints = {
                "full": "Free space there, or send less: --exclude.",
                "directory": "Run once without --use-existing-folder, so that it is sent.",
            }
            path = f" ({header['path']})" if header["path"] else ""
            raise HostError(f"{name}: {text}{path}.", hint=hints.get(header["kind"], ""))
        if header["op"] not in expected:
            raise HostError(f"{name} answered {header['op']} instead of {' or '.join(expected)}.")
        return header, payload

    async def _ping(self) -> None:
        with contextlib.suppress(HostUnreachable):
            while True:
                await asyncio.sleep(_PING_SECONDS)
                await self._send({"op": "ping"})
