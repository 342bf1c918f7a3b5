"""The slice map of a session's service in a notebook, live while cells run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pathways_jupyter.base.events import SessionState
from pathways_jupyter.render import slices as still
from pathways_jupyter.render.view import View
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.service.model import Service
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel.session import Session
from pathways_jupyter.widgets.watched import Watched

_OVER = {SessionState.CLOSING, SessionState.CLOSED, SessionState.FAILED}
_REDRAW_SECONDS = 0.5
"""Shortest time between two updates: each is a message to the browser and changes the notebook's file."""


def end_all() -> None:
    """Freeze all maps before the session ends, so that they keep showing its slices as held."""
    # A copy: each takes itself off the list.
    for each in tuple(SliceMap.watched):
        each.end("The session has ended.")


class SliceMap(Watched):
    """The slices of `session`'s service: what is ready, starting or down, and who holds what.

    A thread watches the cluster until the session ends or newer maps replace this one.

    Args:
      shell: IPython's shell of this kernel.
      services: The services to begin with.
    """

    watched: ClassVar[list[Watched]] = []
    superseded = "newer maps were opened"

    def __init__(self, shell: Any, session: Session, services: Sequence[Service]) -> None:
        self._session = session
        self._services = tuple(services)
        super().__init__(shell)

    def _drawn(self, note: str = "") -> View:
        session = self._session
        viewer = still.Viewer(session.id, session.record.user)
        return still.view(self._services, viewer=viewer, note=note, live="" if note else session.id)

    def _begin(self) -> None:
        super()._begin()
        # A thread of its own, because following the session's events blocks.
        threading.Thread(target=self._end_with_session, name="pathways-slices-end", daemon=True).start()

    def _end_with_session(self) -> None:
        for _ in self._session.follow(self._session.event_count):
            if self._session.state in _OVER:
                break
        self.end("The session has ended.")

    async def _watch(self) -> None:
        record, problem, changed = self._session.record, "", asyncio.Event()
        watch = ClusterWatch(replace(await clusters.resolve(record), namespace=record.namespace))
        service = record.service.partition(":")[0]

        def take(message: dict[str, Any]) -> None:
            nonlocal problem
            if message["type"] == "watch":
                problem = f"Not live: {message['problem']['message']}" if message["problem"] else ""
            changed.set()

        watch.add(take)
        try:
            while not self._over:
                await changed.wait()
                # Cleared before reading, so that a change meanwhile causes another drawing.
                changed.clear()
                pictures = watch.pictures
                mine = [each for each in pictures if each.address.partition(":")[0] == service]
                self._services = tuple(_better(self._services, mine or pictures))
                if self._session.state not in _OVER:
                    self._redraw(self._drawn(problem))
                await asyncio.sleep(_REDRAW_SECONDS)
        finally:
            await watch.close()


def _better(before: Sequence[Service], after: Sequence[Service]) -> Sequence[Service]:
    """`after`, unless it only knows less: a new watch has not read the proxies' logs yet."""
    if not after:
        return before
    same = [{holder.job for service in each for holder in service.holders} for each in (before, after)]
    knew, knows = (all(service.certain for service in each) for each in (before, after))
    return before if knew and not knows and same[0] == same[1] else after
