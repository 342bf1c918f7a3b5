"""One host of a run: its connection, which is made again when it drops, its status and its log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from pathways_jupyter.multihost.errors import HostError, HostUnreachable
from pathways_jupyter.multihost.hostsession import Holder, HostSession, Outcome, Sessions
from pathways_jupyter.multihost.output import HostLog
from pathways_jupyter.multihost.pack import Packed
from pathways_jupyter.multihost.relay import Relay
from pathways_jupyter.multihost.run_events import Changed, Event, HostStatus, Output, Phase
from pathways_jupyter.multihost.spool import Spool
from pathways_jupyter.multihost.targets import Target
from pathways_jupyter.retry import Backoff

Answer = TypeVar("Answer")
Publish = Callable[[Event], Awaitable[None]]

PATIENCE_SECONDS = 120.0
"""How long a dropped connection is tried again."""
_HURRIED_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.3, 5.0
_PROGRESS_SECONDS = 0.2


class HostRun:
    """The run's part on one host.

    Args:
      publish: Receives its events; waits while the reader is slow.
      hint_at: Like `publish` for events that may be dropped.
      known: What is known of the host, if the run was started before.
    """

    def __init__(
        self,
        known: HostStatus,
        sessions: Sessions,
        log: HostLog,
        publish: Publish,
        hint_at: Callable[[Event], None],
    ) -> None:
        self.status = known
        self.log = log
        self._sessions, self._publish, self._hint_at = sessions, publish, hint_at
        self._session: HostSession | None = None
        self._reached = False
        self._reported = 0.0

    @property
    def target(self) -> Target:
        """The host."""
        return self.status.target

    async def prepare(
        self, packed: Packed | None, spool: Spool | None, directory: str, relay: Relay | None = None
    ) -> bool:
        """Connect, and send what the host lacks; return whether that succeeded.

        Args:
          relay: Decides which host receives the files from here, and which from another host; all from here without.

        Raises:
          PackError: A file has changed since it was packed.
        """
        await self._change(phase=Phase.CONNECTING)

        async def work(session: HostSession) -> None:
            if packed is not None and spool is not None:
                await self._change(phase=Phase.SENDING)
                if relay is not None:
                    await relay.sync(session, packed, spool, directory, self._sent)
                    return
                await session.send(spool, await session.lacking(packed, directory), self._sent)
                await session.unpack(directory)

        try:
            await self._steadily(work)
        except HostError as error:
            await self.fail(error)
            return False
        await self._change(phase=Phase.READY)
        return True

    async def holders(self, *, stop: bool, grace: float) -> tuple[Holder, ...]:
        """See :meth:`HostSession.holders`.

        Raises:
          HostError: They could not be ended, or the host cannot be reached.
        """
        return await self._steadily(lambda session: session.holders(stop=stop, grace=grace))

    async def start(self, spec: dict[str, Any]) -> bool:
        """Start the command; return whether it runs. Asking again after a lost answer does not start it twice."""
        try:
            await self._steadily(lambda session: session.start(spec))
        except HostError as error:
            await self.fail(error)
            return False
        await self._change(phase=Phase.RUNNING, began=time.time())
        return True

    async def follow(self, run: str, stopping: asyncio.Event) -> None:
        """Read the output until the run's end on this host, and end it when `stopping` is set."""

        async def work(session: HostSession) -> Outcome:
            if self.status.phase is not Phase.RUNNING:
                known, outcome = await session.status(run)
                if known and outcome is None:
                    # Its end may have come while no one followed it.
                    await self._change(phase=Phase.RUNNING)
            asking = asyncio.create_task(self._stop_when(stopping, session, run))
            try:
                async for piece in session.follow(run, self.log.size):
                    if isinstance(piece, Outcome):
                        return piece
                    await self._show(self.log.add(piece))
            finally:
                asking.cancel()
            raise HostUnreachable(f"{self.target.name} sent no outcome.")

        try:
            outcome = await self._steadily(work, stopping)
        except HostUnreachable as error:
            await self._change(phase=Phase.LOST, ended=time.time(), message=str(error), hint=error.hint)
            return
        except HostError as error:
            await self.fail(error)
            return
        await self._show(self.log.close())
        await self._finish(outcome)

    async def fail(self, error: HostError) -> None:
        """Set the status of a host that could not start."""
        await self._change(phase=Phase.FAILED, ended=time.time(), message=str(error), hint=error.hint)

    async def stopped(self) -> None:
        """Set the status of a host on which nothing was started, because the run was stopped."""
        if not self.status.phase.over:
            await self._change(phase=Phase.STOPPED, ended=time.time())

    async def close(self) -> None:
        """Close connection and log; what runs on the host goes on."""
        self.log.close()
        session, self._session = self._session, None
        if session is not None:
            await self._sessions.release(session)

    async def _finish(self, outcome: Outcome) -> None:
        phase, message = Phase.EXITED, ""
        if outcome.why == "stopped":
            phase = Phase.STOPPED
        elif outcome.why != "exited":
            phase = Phase.LOST
            message = {
                "abandoned": f"{self.target.name} ended it, because no client was connected.",
                "lost": f"The keeper of the run on {self.target.name} was killed.",
            }[outcome.why]
        began = self.status.began
        ended = began + outcome.seconds if began and outcome.seconds is not None else time.time()
        await self._change(phase=phase, code=outcome.code, ended=ended, message=message)

    async def _steadily(
        self, work: Callable[[HostSession], Awaitable[Answer]], stopping: asyncio.Event | None = None
    ) -> Answer:
        """Do `work`, again after each lost connection, until the host was out of reach for too long.

        Raises:
          HostUnreachable: It is out of reach, or was never reached.
          HostError: The work failed.
        """
        give_up_at, pauses = 0.0, Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                if self._session is None:
                    self._session = await self._sessions.open(self.target)
                    self._reached = True
                return await work(self._session)
            except HostUnreachable:
                session, self._session = self._session, None
                if session is not None:
                    await session.close()
                if not self._reached:
                    # A wrong address does not become right by waiting.
                    raise
                if session is not None and session.progressed:
                    give_up_at = 0.0
                    pauses.reset()
                patience = _HURRIED_SECONDS if stopping is not None and stopping.is_set() else PATIENCE_SECONDS
                give_up_at = give_up_at or time.monotonic() + patience
                if time.monotonic() > give_up_at:
                    raise
            await self._change(phase=Phase.RECONNECTING)
            await pauses.wait()

    async def _stop_when(self, stopping: asyncio.Event, session: HostSession, run: str) -> None:
        await stopping.wait()
        await session.stop(run)

    async def _show(self, lines: tuple[str, ...]) -> None:
        if lines:
            self.status = replace(self.status, last_line=self.log.last_line)
            await self._publish(Output(self.target, lines))

    def _sent(self, done: int, total: int) -> None:
        self.status = replace(self.status, sent=done, total=total)
        if time.monotonic() - self._reported > _PROGRESS_SECONDS:
            self._reported = time.monotonic()
            self._hint_at(Changed(self.status))

    async def _change(self, **values: Any) -> None:
        self.status = replace(self.status, **values)
        await self._publish(Changed(self.status))
