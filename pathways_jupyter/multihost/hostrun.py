"""One host of a run: its connection, which is made again when it drops, its status and its log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import IO, Any, TypeVar

from pathways_jupyter.base import tasks
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.base.text import some
from pathways_jupyter.multihost.errors import HostUnreachable, MultihostError, RemoteHostError
from pathways_jupyter.multihost.host_connections import Connections
from pathways_jupyter.multihost.host_program import Program, frame
from pathways_jupyter.multihost.output import HostLog
from pathways_jupyter.multihost.pack import Sending
from pathways_jupyter.multihost.remote import request_loop as remote
from pathways_jupyter.multihost.run_events import Changed, Event, HostPhase, HostStatus, Note, Output
from pathways_jupyter.multihost.targets import Target

Answer = TypeVar("Answer")

PATIENCE_SECONDS = 120.0
"""Time for which a dropped connection is tried again."""
_HURRIED_SECONDS = 10.0
"""The same once the run is to end."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.3, 5.0
_PROGRESS_SECONDS = 0.2
_FORGET_SECONDS = 5.0
_PING_SECONDS = 2.0
"""Much shorter than the lease of a run, so that a busy moment here ends nothing there."""
_SEND_BYTES = 256 * 1024
_LAST_LINE_CHARACTERS = 300
_REASONS = {
    "abandoned": "{} ended it, because no client was connected.",
    "lost": "The keeper of the run on {} is gone.",
}


class HostRun:
    """The run's part on one host.

    Attributes:
      problem: Why its log could not be written any more, which ends the run.

    Args:
      run: The run's id on the host.
      publish: Receives its events; waits while the reader is slow.
    """

    def __init__(
        self,
        target: Target,
        run: str,
        connections: Connections,
        log: HostLog,
        publish: Callable[[Event], Awaitable[None]],
    ) -> None:
        self.status = HostStatus(target)
        self._log = log
        self._run, self._connections, self._publish = run, connections, publish
        self._program: Program | None = None
        self._reached = False
        self.problem: MultihostError | None = None

    @property
    def target(self) -> Target:
        """The host."""
        return self.status.target

    async def prepare(self, sending: Sending | None, directory: str) -> bool:
        """Connect, and send what the host lacks; return whether that succeeded.

        Raises:
          PackError: A file has changed since it was packed.
        """
        await self._change(phase=HostPhase.CONNECTING)

        async def work(program: Program) -> None:
            if sending is None:
                return
            packed = await sending.packed()
            await self._change(phase=HostPhase.SENDING)
            answer = await program.ask("sync", packed.manifest, directory=directory, name=self._run)
            missing = tuple(answer["missing"])
            await self._change(sent=0, total=sum(packed.contents[each].size for each in missing))
            if missing:
                await self._send(program, await sending.archive(missing))
            # The second answer: the program has unpacked what was sent.
            await program.answer()

        try:
            await self._steadily(work)
        except RemoteHostError as error:
            await self.fail(error)
            return False
        await self._change(phase=HostPhase.READY)
        return True

    async def start(self, spec: dict[str, Any]) -> bool:
        """Start the command; return whether it runs. A second request after a lost answer does not start it twice."""
        try:
            answer = await self._steadily(lambda program: program.ask("start", run=self._run, spec=spec))
        except RemoteHostError as error:
            await self.fail(error)
            return False
        if held := answer["held"]:
            now = "held the TPU chips, and was ended." if spec["free"] else "holds the TPU chips; --free-chips ends it."
            await self._publish(Note(f"{self.target.name}: {some(held)} {now}"))
        await self._change(phase=HostPhase.RUNNING, began=time.time())
        return True

    async def follow(self, stopping: asyncio.Event) -> None:
        """Read the output until the run's end on this host, and end it when `stopping` is set."""

        async def send_signs(program: Program) -> None:
            while not stopping.is_set():
                await program.write(remote.ALIVE)
                await tasks.first_done(stopping.wait(), seconds=_PING_SECONDS)
            while True:
                await program.write(remote.STOP)
                await asyncio.sleep(_PING_SECONDS)

        async def work(program: Program) -> dict[str, Any]:
            await program.ask("follow", run=self._run, offset=self._log.size)
            if self.status.phase is not HostPhase.RUNNING:
                await self._change(phase=HostPhase.RUNNING)
            signs = asyncio.create_task(send_signs(program))
            try:
                while "outcome" not in (part := await program.answer()):
                    await self._show(self._written(await program.receive(part["bytes"]), stopping))
            finally:
                # A lost connection is reported by what reads from it.
                await tasks.stop(signs)
            # All of it is here. Files that are not removed now are removed by a later run on the host. Its answer is
            # awaited, because sshd drops what it has not passed on when a connection is closed.
            with contextlib.suppress(RemoteHostError, TimeoutError):
                async with asyncio.timeout(_FORGET_SECONDS):
                    await program.write(remote.FORGET)
                    await program.answer()
            outcome: dict[str, Any] = part["outcome"]
            return outcome

        try:
            outcome = await self._steadily(work, stopping)
        except RemoteHostError as error:
            await self._change(phase=HostPhase.LOST, ended=time.time(), message=str(error), hint=error.hint)
            return
        await self._show(self._log.close())
        await self._finish(**outcome)

    async def fail(self, error: RemoteHostError) -> None:
        """Set the status of a host that could not start."""
        await self._change(phase=HostPhase.FAILED, ended=time.time(), message=str(error), hint=error.hint)

    async def stopped(self) -> None:
        """Set the status of a host on which nothing was started, because the run was stopped."""
        if not self.status.phase.over:
            await self._change(phase=HostPhase.STOPPED, ended=time.time())

    async def close(self) -> None:
        """Close connection and log; what runs on the host goes on."""
        self._log.close()
        program, self._program = self._program, None
        if program is not None:
            await self._connections.release(program)

    async def _send(self, program: Program, archive: IO[bytes]) -> None:
        # Read by position, because many hosts are sent to from one file.
        file, position, size = archive.fileno(), 0, archive.seek(0, os.SEEK_END)
        reported = 0.0
        await program.write(frame(size))
        while position < size:
            piece = os.pread(file, _SEND_BYTES, position)
            await program.write(piece)
            position += len(piece)
            self.status = replace(self.status, sent=round(position / size * self.status.total))
            if time.monotonic() - reported > _PROGRESS_SECONDS:
                reported = time.monotonic()
                await self._change()

    async def _finish(self, code: int, why: str, seconds: float | None = None) -> None:
        phase = {"exited": HostPhase.EXITED, "stopped": HostPhase.STOPPED}.get(why, HostPhase.LOST)
        message = _REASONS.get(why, "").format(self.target.name)
        # By the host's clock: it may have ended while the connection was lost.
        ended = self.status.began + seconds if self.status.began and seconds is not None else time.time()
        await self._change(phase=phase, code=code, ended=ended, message=message)

    async def _steadily(
        self, work: Callable[[Program], Awaitable[Answer]], stopping: asyncio.Event | None = None
    ) -> Answer:
        """Do `work`, again after each lost connection, until the host was out of reach for too long.

        Raises:
          HostUnreachable: It is out of reach, or was never reached.
          RemoteHostError: The work failed.
        """
        lost_at, pauses = 0.0, Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                if self._program is None:
                    self._program = await self._connections.open(self.target)
                    self._reached = True
                return await work(self._program)
            except HostUnreachable:
                program, self._program = self._program, None
                if program is not None:
                    # Both: a pod's connection is that of its program, and a host's may have others.
                    await program.close()
                    await program.connection.close()
                if not self._reached:
                    # A wrong address does not become right by waiting.
                    raise
                if program is not None and program.answered:
                    lost_at = 0.0
                    pauses.reset()
                lost_at = lost_at or time.monotonic()
                # The end of the run may be requested while a host is out of reach.
                patience = _HURRIED_SECONDS if stopping is not None and stopping.is_set() else PATIENCE_SECONDS
                if time.monotonic() - lost_at > patience:
                    raise
            await self._change(phase=HostPhase.RECONNECTING)
            await pauses.wait()

    def _written(self, data: bytes, stopping: asyncio.Event) -> tuple[str, ...]:
        """Append to the log; return the new lines. If it cannot be written, end the run, and read on until its end."""
        if self.problem is None:
            try:
                return self._log.add(data)
            except MultihostError as error:
                self.problem = error
                stopping.set()
        return ()

    async def _show(self, lines: tuple[str, ...]) -> None:
        if lines:
            self.status = replace(self.status, last_line=self._log.last_line[:_LAST_LINE_CHARACTERS])
            await self._publish(Output(self.status, lines))

    async def _change(self, **values: Any) -> None:
        self.status = replace(self.status, **values)
        await self._publish(Changed(self.status))
