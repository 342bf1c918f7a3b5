"""One connection to the program on a host: requests and their answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pathways_jupyter.multihost import host_program
from pathways_jupyter.multihost.errors import FetchFailed, HostError, HostUnreachable
from pathways_jupyter.multihost.host_program import Channel, Connect
from pathways_jupyter.multihost.pack import Packed
from pathways_jupyter.multihost.remote.frames import Decoder, encode
from pathways_jupyter.multihost.spool import Spool
from pathways_jupyter.multihost.targets import Target

if TYPE_CHECKING:
    from pathways_jupyter.multihost.remote.frames import Frame

DEVICES = ("/dev/accel*", "/dev/vfio/*")
"""The devices of all generations of TPUs."""
_HELLO_SECONDS = 60.0
_ECHO_SECONDS = 3.0
_PING_SECONDS = 2.0
"""Much shorter than the lease of a run, so that a busy moment here ends nothing there."""


Sent = Callable[[int, int], None]
"""Called with the bytes of content that a host has received, and that it lacked."""


@dataclass(frozen=True)
class Holder:
    """A process that has a TPU open."""

    pid: int
    device: str
    command: str


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
        channel = await connect(target, ["python3", "-I", "-S", "-c", host_program.BOOTSTRAP])
        session = cls(target, channel)
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                await channel.write(host_program.program())
                hello, _ = await session._receive("hello")
        except TimeoutError:
            await channel.close()
            raise HostUnreachable(f"{target.name} did not answer in {_HELLO_SECONDS:.0f} s.") from None
        except BaseException:
            await channel.close()
            raise
        session.python = hello["python"]
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

    async def lacking(self, packed: Packed, directory: str = "") -> tuple[str, ...]:
        """Offer `packed` for `directory`; return the hashes of the contents that the host lacks."""
        _, payload = await self._ask({"op": "offer", "directory": directory}, "lack", payload=packed.listing)
        return tuple(json.loads(zlib.decompress(payload)))

    async def send(self, spool: Spool, missing: Sequence[str], sent: Sent) -> None:
        """Send the contents with these hashes, which the host has said to lack.

        Raises:
          PackError: A file has changed since it was packed.
          HostUnreachable: The connection was lost; what has arrived is kept for the next attempt.
        """
        total, done = spool.size(missing), 0
        self.idle = False
        sent(0, total)
        # Under the lock, because pieces end within frames: a ping must not come between two of them.
        async with self._sending:
            async for piece, share in spool.frames(missing):
                await self._channel.write(piece)
                done += share
                sent(done, total)

    async def unpack(self, directory: str) -> int:
        """Make `directory` on the host, relative to the home directory, hold what was offered.

        Returns:
          The number of files that the host wrote.

        Raises:
          HostError: The host cannot write the files.
        """
        header, _ = await self._ask({"op": "unpack", "directory": directory}, "unpacked")
        return int(header["written"])

    async def share(self, secret: bytes) -> tuple[str, int]:
        """Let other hosts fetch what was just unpacked; return address and port.

        Args:
          secret: The certificate and key with which they come.

        Raises:
          HostError: The host cannot listen.
        """
        header, _ = await self._ask({"op": "share", "address": self.target.inside}, "shared", payload=secret)
        return str(header["address"]), int(header["port"])

    async def unshare(self) -> None:
        """Stop what :meth:`share` began."""
        await self._send({"op": "unshare"})

    async def fetch(self, address: str, port: int, secret: bytes, received: Callable[[int], None]) -> None:
        """Let the host fetch what it lacks from another one.

        Args:
          received: Called with the bytes that have arrived so far.

        Raises:
          FetchFailed: The other host did not send it; what has arrived is kept.
          HostError: The host cannot write the files.
        """
        self.idle = False
        await self._send({"op": "fetch", "address": address, "port": port}, secret)
        while True:
            header, _ = await self._receive("fetching", "fetched")
            if header["op"] == "fetched":
                break
            received(header["bytes"])
        self.idle = True
        if header["problem"]:
            raise FetchFailed(header["problem"])

    async def holders(self, *, stop: bool, grace: float) -> tuple[Holder, ...]:
        """Return the processes that hold the host's TPU, and end them if `stop`.

        Raises:
          HostError: They could not be ended.
        """
        header, _ = await self._ask({"op": "holders", "devices": DEVICES, "stop": stop, "grace": grace}, "holders")
        if header["left"]:
            pids = ", ".join(str(pid) for pid, _, _ in header["left"])
            raise HostError(
                f"On {self.target.name} the TPU is still held by {pids}.", hint="End them there, with sudo."
            )
        return tuple(Holder(*each) for each in header["found"])

    async def start(self, spec: dict[str, Any]) -> bool:
        """Start a run; return False if the host has started it already, and then do nothing."""
        header, _ = await self._ask({"op": "start", "spec": spec}, "started")
        return not header["already"]

    async def follow(self, run: str, offset: int) -> AsyncIterator[bytes | Outcome]:
        """Yield the output of a run from the byte `offset` on, and at last its outcome."""
        self.idle = False
        await self._send({"op": "follow", "run": run, "offset": offset})
        while True:
            header, payload = await self._receive("output", "exit")
            if header["op"] == "exit":
                self.idle = True
                yield _outcome(header)
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
        ended = header["outcome"]
        return header["known"], _outcome(ended) if ended else None

    async def _ask(self, header: dict[str, Any], expected: str, *, payload: bytes = b"") -> Frame:
        """Send a request, and return its answer."""
        self.idle = False
        await self._send(header, payload)
        answer = await self._receive(expected)
        self.idle = True
        return answer

    async def _send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        async with self._sending:
            await self._channel.write(encode(header, payload))

    async def _receive(self, *expected: str) -> Frame:
        while not self._frames:
            data = await self._channel.read()
            if not data:
                raise self._ended()
            try:
                self._frames.extend(self._decoder.feed(data))
            except ValueError as error:
                raise HostError(
                    f"{self.target.name} does not answer as expected: {data[:60]!r}.",
                    hint="A login script there must print nothing when no terminal is connected.",
                ) from error
        header, payload = self._frames.pop(0)
        self.progressed = header["op"] != "hello"
        if header["op"] == "error":
            raise self._failure(header)
        if header["op"] not in expected:
            raise HostError(f"{self.target.name} answered {header['op']} instead of {' or '.join(expected)}.")
        return header, payload

    def _ended(self) -> HostError:
        complaint = self._channel.complaint()
        if "not found" in complaint or "No such file" in complaint:
            return HostError(
                f"{self.target.name} has no python3: {complaint}.", hint="Install Python 3.9 or later there."
            )
        lost = f"The connection to {self.target.name} was lost"
        return HostUnreachable(f"{lost}: {complaint}." if complaint else f"{lost}.", hint="Check the network.")

    def _failure(self, header: dict[str, Any]) -> HostError:
        path = f" ({header['path']})" if header["path"] else ""
        hints = {
            "full": "Free space there, or send less: --exclude.",
            "directory": "Run once without --use-existing-folder, so that it is sent.",
        }
        text = "the disk is full" if header["kind"] == "full" else header["message"]
        return HostError(f"{self.target.name}: {text}{path}.", hint=hints.get(header["kind"], ""))

    async def _ping(self) -> None:
        with contextlib.suppress(HostUnreachable):
            while True:
                await asyncio.sleep(_PING_SECONDS)
                await self._send({"op": "ping"})


def _outcome(header: dict[str, Any]) -> Outcome:
    return Outcome(header["code"], header["why"], header.get("seconds"))


class Sessions:
    """Opens sessions, and closes them after their use."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._ahead: dict[Target, asyncio.Task[HostSession]] = {}

    def open_ahead(self, targets: Iterable[Target]) -> None:
        """Begin to open a session with each of `targets`, for :meth:`open` to return."""
        self._ahead |= {target: asyncio.create_task(self._open(target)) for target in targets}

    async def open(self, target: Target) -> HostSession:
        """Return a session with `target`; see :meth:`HostSession.open`."""
        opening = self._ahead.pop(target, None)
        return await (self._open(target) if opening is None else opening)

    async def release(self, session: HostSession) -> None:
        """End the use of `session`."""
        await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release the sessions that were opened ahead and not used."""
        unused, self._ahead = list(self._ahead.values()), {}
        for opening in unused:
            opening.cancel()
        found = await asyncio.gather(*unused, return_exceptions=True)
        await asyncio.gather(*(self.release(each) for each in found if isinstance(each, HostSession)))

    async def _open(self, target: Target) -> HostSession:
        return await HostSession.open(target, self._connect)
