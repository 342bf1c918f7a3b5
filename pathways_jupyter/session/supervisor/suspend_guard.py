"""Counts how long nothing was computed in a session, says so, and has the kernel suspend it where it has a limit.

This is the only clock for unused sessions: notebook, sidebar and command line show what it reports. A session is used
while a cell runs, and while anything is sent to its proxy. One without a limit (``suspend_after``) is only reported.
Only the kernel can save arrays, so it is asked; where it does not answer, nothing changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.text import count
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.supervisor.session_log import SessionLog

_IDLE = "Nothing was computed for long."
_UNUSED_SECONDS = 2400.0
"""After how long a session without a limit is reported."""
_NOTICE_SECONDS = 300.0
"""Notice before it is suspended; half of the time where that is shorter."""
_LOOK_SECONDS = 30.0


class SuspendGuard:
    """Watches one session.

    Args:
      ask: Asks the kernel, with a method and its parameters; returns None where that does not answer.
      unused_seconds: After how long a session without a limit is reported.
    """

    def __init__(
        self,
        session_log: SessionLog,
        ask: Callable[..., Awaitable[Any]],
        *,
        unused_seconds: float = _UNUSED_SECONDS,
    ) -> None:
        self._unused_seconds = unused_seconds
        self._session_log = session_log
        self._ask = ask
        self._used_at = boot_seconds()
        # On a clock that stands still while the machine sleeps: after that the notice comes first.
        self._noticed_at: float | None = None
        self._asked = False

    def keep(self) -> None:
        """Count as used now."""
        self._used_at = boot_seconds()
        if self._session_log.record.unused_since:
            self._session_log.unused("In use again.")
        self._forget()

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            limit = self._session_log.record.suspend_after
            await asyncio.sleep(min(_LOOK_SECONDS, (limit or self._unused_seconds) / 10))
            state = self._session_log.record.state
            if not state.is_connected:
                self._used_at = boot_seconds()
                self._forget()
            elif state in {SessionState.CONNECTED, SessionState.DEGRADED}:
                # Nothing can be saved in the others; the time goes on, and the notice comes first.
                await self._look(limit)

    async def _look(self, limit: float) -> None:
        notice = min(_NOTICE_SECONDS, limit / 2)
        longest = limit - notice if limit else self._unused_seconds
        idle, used_at = self._idle(), self._used_at
        if idle >= longest:
            # The kernel only where it matters. One that does not say when a cell ran last is no notebook's, or busy.
            without_cell = await self._ask(Method.IDLE)
            idle = min(idle, without_cell) if isinstance(without_cell, (int, float)) else 0.0
        if used_at != self._used_at:
            # Kept while the kernel was asked.
            return
        if idle < longest:
            if self._noticed_at is not None:
                self.keep()
        elif self._noticed_at is None:
            self._noticed_at = time.monotonic()
            self._report(idle, time.time() + max(notice, limit - idle) if limit else 0.0)
        elif limit and idle >= limit and time.monotonic() - self._noticed_at >= notice and not self._asked:
            # Once: a kernel that could not save says why, and tries no more until it has been used.
            self._asked = bool(await self._ask(Method.SUSPEND, why=_IDLE))
            if self._asked and self._session_log.record.suspends_at:
                # It is still unused, and not suspended at a time that has been announced.
                self._session_log.unused("The arrays are being saved.", self._session_log.record.unused_since)

    def _report(self, idle: float, suspends_at: float) -> None:
        message = f"Nothing was computed for {f'{idle / 60:.0f} min' if idle >= 60 else f'{idle:.0f} s'}."
        if suspends_at:
            at = time.strftime("%H:%M", time.localtime(suspends_at))
            message += f" At {at} the arrays are saved and the slices freed; any cell keeps them."
        else:
            message += f" The session holds {count(sum(self._session_log.record.instances.values()), 'slice')}."
        self._session_log.unused(message, time.time() - idle, suspends_at=suspends_at)

    def _idle(self) -> float:
        return boot_seconds() - max(self._used_at, self._session_log.used_at)

    def _forget(self) -> None:
        self._noticed_at, self._asked = None, False
