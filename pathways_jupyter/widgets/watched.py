"""Live pictures of what is in a cluster: the slices of a session's service, and a job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pathways_jupyter.base import tasks
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.kube.client import Client
from pathways_jupyter.render import jobs, slices
from pathways_jupyter.render.view import View
from pathways_jupyter.service.jobs import JobPicture, pictures
from pathways_jupyter.session import clusters
from pathways_jupyter.widgets.live import REDRAW_SECONDS, Live

if TYPE_CHECKING:
    from pathways_jupyter.service.model import Service
    from pathways_jupyter.session.kernel.session import Session

_MAX_LIVE = 3
"""Pictures of one kind that are live at a time in one kernel; an older one is marked as no longer live."""

_OVER = {SessionState.CLOSING, SessionState.CLOSED, SessionState.FAILED}

logger = logging.getLogger(__name__)


class Watched(Live):
    """A picture that a thread with an event loop keeps up to date.

    Args:
      shell: IPython's shell of this kernel.

    Attributes:
      watched: The pictures of this kind that are live.
      superseded: What an older picture says when there are too many.
    """

    watched: ClassVar[list[Watched]]
    superseded: ClassVar[str]

    def __init__(self, shell: Any) -> None:
        self._watching: tasks.Call | None = None
        super().__init__(shell, self._drawn())

    @abstractmethod
    def _drawn(self, note: str = "") -> View:
        """Return the picture as it is now, with `note` below."""

    @abstractmethod
    async def _watch(self) -> None:
        """Redraw the picture whenever something changes, until there is nothing more to watch."""

    def end(self, note: str = "") -> None:
        """Draw the picture a last time, with `note` below, and stop watching."""
        self._redraw(self._drawn(note), last=True)
        with contextlib.suppress(ValueError):
            self.watched.remove(self)
        if self._watching is not None:
            self._watching.cancel()

    def _begin(self) -> None:
        self.watched.append(self)
        self._follow()
        for older in self.watched[:-_MAX_LIVE]:
            older.end(f"No longer live, because {self.superseded}; run this cell again for the current state.")

    def _follow(self) -> None:
        """Begin to watch, or begin again."""
        if self._watching is not None:
            self._watching.cancel()
        self._watching = tasks.Call(self._run())
        self._watching.start()

    async def _run(self) -> None:
        note = ""
        try:
            await self._watch()
        except PathwaysError as error:
            note = f"No longer live: {error} {error.hint}".rstrip()
        except Exception as error:
            note = f"No longer live: {type(error).__name__}: {error}"
            logger.exception("a live picture")
        self.end(note)


def end_maps() -> None:
    """Freeze all maps of slices before the session ends, so that they keep showing its slices as held."""
    # A copy: each takes itself off the list.
    for each in tuple(SliceMap.watched):
        each.end("The session has ended.")


class SliceMap(Watched):
    """The slices of `session`'s service: what is ready, starting or down, and who holds what.

    A thread watches the session's cluster until the session ends or newer maps replace this one. After a reconnect it
    begins again, since an embedded cluster may have ended before, and another one started.

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
        viewer = slices.Viewer(session.id, session.record.user)
        return slices.view(self._services, viewer=viewer, note=note, live="" if note else session.id)

    def _begin(self) -> None:
        super()._begin()
        # A thread of its own, because following the session's events blocks.
        threading.Thread(target=self._follow_session, name="pathways-slices-session", daemon=True).start()

    def _follow_session(self) -> None:
        for event in self._session.follow(self._session.event_count):
            if self._session.state in _OVER:
                break
            if "generation" in event.data and not self._over:
                self._follow()
        self.end("The session has ended.")

    async def _watch(self) -> None:
        # It takes a while to import, and only a map needs it.
        from pathways_jupyter.service.clusterwatch import ClusterWatch

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
                await asyncio.sleep(REDRAW_SECONDS)
        finally:
            await watch.close()


def _better(before: Sequence[Service], after: Sequence[Service]) -> Sequence[Service]:
    """`after`, unless it only knows less: a new watch has not read the proxies' logs yet."""
    if not after:
        return before
    same = [{holder.job for service in each for holder in service.holders} for each in (before, after)]
    knew, knows = (all(service.certain for service in each) for each in (before, after))
    return before if knew and not knows and same[0] == same[1] else after


class JobPanel(Watched):
    """A job's state, pods and events, until the job is over.

    Args:
      shell: IPython's shell of this kernel.
      where: The job's cluster.
      picture: The job to begin with.
    """

    watched: ClassVar[list[Watched]] = []
    superseded = "other jobs were shown"

    def __init__(self, shell: Any, where: ConnectConfig, picture: JobPicture) -> None:
        self._where = where
        self._picture = picture
        super().__init__(shell)

    def _drawn(self, note: str = "") -> View:
        return jobs.details(self._picture, note=note)

    async def _watch(self) -> None:
        job = self._picture.job
        async with (
            clusters.explain_local_errors(self._where),
            Client(await clusters.resolve(self._where)) as client,
            contextlib.aclosing(pictures(client, job.name, namespace=job.namespace)) as found,
        ):
            async for self._picture in found:
                self._redraw(self._drawn())
