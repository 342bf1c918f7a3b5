"""The slice map of a session's service in a notebook, live while cells run."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

from pathways_jupyter.errors import PathwaysError
from pathways_jupyter.events import SessionState
from pathways_jupyter.render import slices as still
from pathways_jupyter.service import status, tables
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.service.naming import current_user, label_value
from pathways_jupyter.session import reach
from pathways_jupyter.session.session import Session
from pathways_jupyter.widgets import picture

_OVER = {SessionState.CLOSING, SessionState.CLOSED, SessionState.FAILED}
_LIVE = 3
"""Maps of one kernel that are live at a time; an older one says that it is not any more."""

_shown: list[SliceMap] = []


class SliceMap:
    """The slices of `session`'s service: what is ready, starting or down, and who holds what.

    A thread watches the cluster until the session ends or newer maps took its place. Where no widgets can be shown it
    is a still picture.

    Args:
      services: Pictures of the service, where the caller has them already.
    """

    def __init__(self, session: Session, services: tuple[status.Service, ...] | None = None) -> None:
        self._session = session
        self._services = services
        self._widget: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if self._services is None:
            self._services = _fetch(self._session)
        view = still.view(self._services, mine=self._session.id)
        if self._widget is None and picture.can_show_widgets():
            me = label_value(current_user())
            known = [row for service in self._services for row in tables.slice_rows(service, me=me)]
            self._widget = picture.make("slices", known)
            # Daemons both: a kernel never waits for a picture when it ends.
            threading.Thread(target=self._run, name="pathways-slices", daemon=True).start()
            threading.Thread(target=self._wait, name="pathways-slices-end", daemon=True).start()
            _shown.append(self)
            while len(_shown) > _LIVE:
                _shown.pop(0).stop("A newer map has taken over; run this cell again to see what is now.")
        return picture.bundle(view, self._widget)

    def __repr__(self) -> str:
        if self._services is None:
            self._services = _fetch(self._session)
        return still.view(self._services, mine=self._session.id).text

    def stop(self, note: str) -> None:
        """Ends the live updates, and says so below the map."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
        if self._widget is not None:
            self._widget.note = note

    def _run(self) -> None:
        try:
            asyncio.run(self._watch())
        except asyncio.CancelledError:
            return
        except PathwaysError as error:
            self._widget.note = f"{error} {error.hint}"

    async def _watch(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        record = self._session.record
        cluster = await reach.again(record)
        watch = ClusterWatch(replace(cluster, namespace=record.namespace))
        rows: dict[str, dict[str, Any]] = {}
        hearing = ""
        service = record.service.partition(":")[0]

        def take(message: dict[str, Any]) -> None:
            nonlocal hearing
            if message["type"] == "hearing":
                hearing = message["hearing"]
                self._widget.note = message["problem"]["message"] if message["problem"] else ""
                return
            if hearing == "loading":
                # An outline without holders is less than what is shown already.
                return
            if message["reset"]:
                rows.clear()
            for row in message["put"].get("slices", ()):
                rows[row["id"]] = row
            for key in message["drop"].get("slices", ()):
                rows.pop(key, None)
            mine = [row for row in rows.values() if service.startswith(row["service"])]
            self._widget.rows = sorted(mine or rows.values(), key=lambda row: (row["service"], row["number"]))

        watch.add(take)
        try:
            await asyncio.Event().wait()
        finally:
            await watch.close()

    def _wait(self) -> None:
        """Stops when the session is over."""
        for _ in self._session.follow(self._session.event_count):
            if self._session.state in _OVER:
                break
        self.stop("The session has ended.")


def _fetch(session: Session) -> tuple[status.Service, ...]:
    from pathways_jupyter import blocking
    from pathways_jupyter.kube.client import Client

    async def ask() -> tuple[status.Service, ...]:
        record = session.record
        async with Client(await reach.again(record)) as client:
            return await status.fetch(client, record.namespace, record.service)

    return blocking.run(ask())
