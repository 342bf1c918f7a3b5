"""One host of a run: its connection, which is made again when it drops, its status and its log."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from pathways_jupyter.base.retry import Backoff
from pathways_jupyter.multihost.errors import HostError, HostUnreachable
from pathways_jupyter.multihost.host_connections import Sessions
from pathways_jupyter.multihost.hostsession import HostSession, Outcome
from pathways_jupyter.multihost.output import HostLog
from pathways_jupyter.multihost.pack import Sending
from pathways_jupyter.multihost.run_events import Changed, Event, HostStatus, Output, Phase
from pathways_jupyter.multihost.targets import Target

Answer = TypeVar("Answer")

PATIENCE_SECONDS = 120.0
"""How long a dropped connection is tried again."""
_HURRIED_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.3, 5.0
_PROGRESS_SECONDS = 0.2
_LAST_LINE_CHARACTERS = 300
_REASONS = {
    "abandoned": "{} ended it, because no client was connected.",
    "lost": "The keeper of the run on {} was killed.",
}


class HostRun:
    """The run's part on one host.

    Args:
      known: What is known of the host, if the run was started before.
      run: The run's id on the host.
      publish: Receives its events; waits while the reader is slow.
    """

    def __init__(
        self,
        known: HostStatus,
        run: str,
        sessions: Sessions,
        log: HostLog,
        publish: Callable[[Event], Awaitable[None]],
    ) -> None:
        self.status = known
        self._log = log
        self._run, self._sessions, self._publish = run, sessions, publish
        self._session: HostSession | None = None
        self._reached = False

    @property
    def target(self) -> Target:
        """The host."""
        return self.status.target

    async def prepare(self, sending: Sending | None, directory: str) -> bool:
        """Connect, and send what the host lacks; return whether that succeeded.

        Raises:
          PackError: A file has changed since it was packed.
        """
        await self._change(phase=Phase.CONNECTING)

        async def work(session: HostSession) -> None:
            if sending is None:
                return
            packed = await sending.packed()
            await self._change(phase=Phase.SENDING)
            # After a lost connection again from here: the host still has what it has received for this run.
            missing = await session.missing(packed, directory, self._run)
            total, reported = sum(packed.contents[each].size for each in missing), 0.0
            await self._change(sent=0, total=total)

            async def sent(share: float) -> None:
                nonlocal reported
                self.status = replace(self.status, sent=round(share * total))
                if time.monotonic() - reported > _PROGRESS_SECONDS:
                    reported = time.monotonic()
                    await self._change()

            await session.apply(await sending.archive(missing) if missing else None, sent)

        try:
            await self._steadily(work)
        except HostError as error:
            await self.fail(error)
            return False
        await self._change(phase=Phase.READY)
        return True

    async def start(self, spec: dict[str, Any]) -> bool:
        """Start the command; return whether it runs. A second request after a lost answer does not start it twice."""
        try:
            await self._steadily(lambda session: session.start({**spec, "run": self._run}))
        except HostError as error:
            await self.fail(error)
            return False
        await self._change(phase=Phase.RUNNING, began=time.time())
        return True

    async def follow(self, stopping: asyncio.Event) -> None:
        """Read the output until the run's end on this host, and end it when `stopping` is set."""

        async def stop_when_requested(session: HostSession) -> None:
            await stopping.wait()
            await session.stop(self._run)

        async def work(session: HostSession) -> Outcome:
            if self.status.phase is not Phase.RUNNING:
                known, outcome = await session.status(self._run)
                if known and outcome is None:
                    # Its end may have come while no one followed it.
                    await self._change(phase=Phase.RUNNING)
            stopper = asyncio.create_task(stop_when_requested(session))
            try:
                async for piece in session.follow(self._run, self._log.size):
                    if isinstance(piece, Outcome):
                        return piece
                    await self._show(self._log.add(piece))
            finally:
                stopper.cancel()
            raise HostUnreachable(f"{self.target.name} sent no outcome.")

        try:
            outcome = await self._steadily(work, stopping)
        except HostUnreachable as error:
            await self._change(phase=Phase.LOST, ended=time.time(), message=str(error), hint=error.hint)
            return
        except HostError as error:
            await self.fail(error)
            return
        await self._show(self._log.close())
        await self._finish(outcome)

    async def refresh(self) -> None:
        """Fetch the output until now, and find out whether the run has ended on this host."""

        async def work(session: HostSession) -> tuple[bool, Outcome | None]:
            # The state first: if it has ended, all of the output is there.
            state = await session.status(self._run)
            while data := await session.read(self._run, self._log.size):
                self._log.add(data)
            return state

        try:
            known, outcome = await self._steadily(work)
        except HostError as error:
            await self._change(phase=Phase.LOST, message=str(error), hint=error.hint)
            return
        self.status = replace(self.status, last_line=self._log.last_line[:_LAST_LINE_CHARACTERS])
        if not known:
            await self._change(phase=Phase.FAILED, began=0.0, message="It was not started on this host.")
        elif outcome is None:
            await self._change(phase=Phase.RUNNING)
        else:
            await self._finish(outcome)

    async def stop(self) -> None:
        """Ask the host to end the run; a host that cannot be reached is left alone."""
        with contextlib.suppress(HostError):
            await self._steadily(lambda session: session.stop(self._run))

    async def fail(self, error: HostError) -> None:
        """Set the status of a host that could not start."""
        await self._change(phase=Phase.FAILED, ended=time.time(), message=str(error), hint=error.hint)

    async def stopped(self) -> None:
        """Set the status of a host on which nothing was started, because the run was stopped."""
        if not self.status.phase.over:
            await self._change(phase=Phase.STOPPED, ended=time.time())

    async def close(self) -> None:
        """Close connection and log; what runs on the host goes on."""
        self._log.close()
        session, self._session = self._session, None
        if session is not None:
            await self._sessions.release(session)

    async def _finish(self, outcome: Outcome) -> None:
        phase = {"exited": Phase.EXITED, "stopped": Phase.STOPPED}.get(outcome.why, Phase.LOST)
        message = _REASONS.get(outcome.why, "").format(self.target.name)
        # By the host's clock, because this one may have come back to the run long after its end.
        known = self.status.began and outcome.seconds is not None
        ended = self.status.began + (outcome.seconds or 0.0) if known else time.time()
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

    async def _show(self, lines: tuple[str, ...]) -> None:
        if lines:
            self.status = replace(self.status, last_line=self._log.last_line[:_LAST_LINE_CHARACTERS])
            await self._publish(Output(self.target, lines))

    async def _change(self, **values: Any) -> None:
        self.status = replace(self.status, **values)
        await self._publish(Changed(self.status))
