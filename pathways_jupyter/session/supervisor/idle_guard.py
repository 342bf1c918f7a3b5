"""Has the kernel suspend a session for which nothing was computed for long.

Only the kernel can save its arrays, so it is asked; where it does not answer, nothing changes. A session is used while
a cell runs, and while anything is sent to its proxy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pathways_jupyter.base.events import EventKind
from pathways_jupyter.base.sentences import say
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.supervisor.session_log import SessionLog

_NOTICE_SECONDS = 300.0
"""Notice before it is suspended; half of the time where that is shorter."""
_LOOK_SECONDS = 30.0


class IdleGuard:
    """Watches one session.

    Args:
      ask: Asks the kernel; returns None where that does not answer.
    """

    def __init__(self, session_log: SessionLog, ask: Callable[[Method], Awaitable[Any]]) -> None:
        self._session_log = session_log
        self._ask = ask
        self._kept_at = boot_seconds()
        # On a clock that stands still while the machine sleeps: after that the notice comes first.
        self._noticed_at: float | None = None
        self._asked = False

    def keep(self) -> None:
        """Count as used now."""
        self._kept_at = boot_seconds()

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            limit = self._session_log.suspend_after
            await asyncio.sleep(min(_LOOK_SECONDS, limit / 10) if limit else _LOOK_SECONDS)
            if limit and self._session_log.record.state.is_connected:
                await self._look(limit)
            else:
                self.keep()

    async def _look(self, limit: float) -> None:
        notice = min(_NOTICE_SECONDS, limit / 2)
        idle = boot_seconds() - max(self._kept_at, self._session_log.used_at)
        if idle >= limit - notice:
            # The kernel only where it matters. One that does not say when a cell ran last is no notebook's, or busy.
            without_cell = await self._ask(Method.IDLE)
            idle = min(idle, without_cell) if isinstance(without_cell, (int, float)) else 0.0
        if idle < limit - notice:
            self._noticed_at, self._asked = None, False
        elif self._noticed_at is None:
            self._noticed_at = time.monotonic()
            at = time.strftime("%H:%M", time.localtime(time.time() + max(notice, limit - idle)))
            message = say(
                "Nothing was computed for {minutes} min. At {time} the arrays are saved and the slices freed; any cell "
                "keeps them.",
                minutes=f"{idle / 60:.0f}",
                time=at,
            )
            self._session_log.report(EventKind.WARNING, message)
        elif idle >= limit and time.monotonic() - self._noticed_at >= notice and not self._asked:
            # Once: a kernel that could not save says why, and tries no more until it has been used.
            self._asked = bool(await self._ask(Method.SUSPEND))
