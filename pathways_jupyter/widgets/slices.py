"""The slice map of a session's service in a notebook, live while cells run."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.render import slices as still
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.service.model import Service
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel.session import Session
from pathways_jupyter.widgets.live import Live

_OVER = {SessionState.CLOSING, SessionState.CLOSED, SessionState.FAILED}
_MAX_LIVE = 3
"""Maps of one kernel that are live at a time; an older one is marked as no longer live."""
_REDRAW_SECONDS = 0.5
"""Shortest time between two updates: each is a message to the browser and changes the notebook's file."""

_live: list[SliceMap] = []


def end_all() -> None:
    """Freeze all maps before the session ends, so that they keep showing its slices as held."""
    # A copy: each takes itself off the list.
    for each in tuple(_live):
        each.end("The session has ended.")


class SliceMap(Live):
    """The slices of `session`'s service: what is ready, starting or down, and who holds what.

    A thread watches the cluster until the session ends or newer maps replace this one.

    Args:
      shell: IPython's shell of this kernel.
      services: The services to begin with.
    """

    def __init__(self, shell: Any, session: Session, services: Sequence[Service]) -> None:
        self._session = session
        self._services = tuple(services)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        super().__init__(shell, self._drawn())

    def end(self, note: str) -> None:
        """Draw the map a last time, with `note` below, and stop watching."""
        self._redraw(self._drawn(note), last=True)
        with contextlib.suppress(ValueError):
            _live.remove(self)
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            # The watch runs in another thread's event loop, and a task may only be cancelled from its own.
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _drawn(self, note: str = "") -> Any:
        return still.view(self._services, viewer=still.Viewer(self._session.id, self._session.record.user), note=note)

    def _begin(self) -> None:
        # Daemon threads, so that a kernel can exit without waiting for them. Two, because following the session's
        # events blocks, while the cluster's watch needs an event loop.
        threading.Thread(target=self._run, name="pathways-slices", daemon=True).start()
        threading.Thread(target=self._wait, name="pathways-slices-end", daemon=True).start()
        _live.append(self)
        for older in _live[:-_MAX_LIVE]:
            older.end("No longer live, because newer maps were opened; run this cell again for the current state.")

    def _run(self) -> None:
        try:
            asyncio.run(self._watch())
        except asyncio.CancelledError:
            return
        except PathwaysError as error:
            self.end(f"No longer live: {error} {error.hint}")

    async def _watch(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        record = self._session.record
        watch = ClusterWatch(replace(await clusters.resolve(record), namespace=record.namespace))
        service = record.service.partition(":")[0]
        changed = asyncio.Event()
        problem = ""

        def take(message: dict[str, Any]) -> None:
            nonlocal problem
            if message["type"] == "watch" and message["problem"]:
                problem = f"Not live: {message['problem']['message']}"
            elif message["type"] == "watch":
                problem = ""
            changed.set()

        watch.add(take)
        try:
            while not self._over:
                await changed.wait()
                changed.clear()
                pictures = watch.pictures
                mine = [each for each in pictures if each.address.partition(":")[0] == service]
                self._services = tuple(_better(self._services, mine or pictures))
                if self._session.state not in _OVER:
                    self._redraw(self._drawn(problem))
                await asyncio.sleep(_REDRAW_SECONDS)
        finally:
            await watch.close()

    def _wait(self) -> None:
        """End it with the session."""
        for _ in self._session.follow(self._session.event_count):
            if self._session.state in _OVER:
                break
        self.end("The session has ended.")


def _better(before: Sequence[Service], after: Sequence[Service]) -> Sequence[Service]:
    """`after`, unless it only knows less: a new watch has not read the proxies' logs yet."""
    if not after:
        return before
    same = [{holder.job for service in each for holder in service.holders} for each in (before, after)]
    knew, knows = (all(service.certain for service in each) for each in (before, after))
    return before if knew and not knows and same[0] == same[1] else after
