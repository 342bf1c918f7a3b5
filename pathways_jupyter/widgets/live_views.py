"""The live views of a notebook: its session's events and slices, a job, and an elastic training run."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.elastic.record import Record
from pathways_jupyter.elastic.run_registry import RUNS
from pathways_jupyter.kube.client import Client
from pathways_jupyter.render import elastic, events, jobs, slices
from pathways_jupyter.render.view import View
from pathways_jupyter.service.jobs import JobDetails, follow
from pathways_jupyter.session import clusters
from pathways_jupyter.widgets.live import REDRAW_SECONDS, Live, Watched

if TYPE_CHECKING:
    from pathways_jupyter.service.model import Service
    from pathways_jupyter.session.kernel.session import Session

_SHOWN_EVENTS = 200
"""Newest events that a timeline shows."""


def _end_of(session: Session) -> str:
    """Return why a view of `session` is the last one, where its supervisor reports nothing any more."""
    if session.state.is_over:
        return "The session has ended."
    return "No longer live: the session's supervisor has died. After %pathways reconnect, run this cell again."


class Timeline(Live):
    """Past events of `session`, and new ones while this is shown, until the session ends."""

    def __init__(self, shell: Any, session: Session) -> None:
        self._events = session.events()
        self._session = session
        self._since = session.event_count
        super().__init__(shell, events.view(self._events[-_SHOWN_EVENTS:]))

    def _begin(self) -> None:
        # A daemon thread, so that a kernel can exit without waiting for it.
        threading.Thread(target=self._follow, name="pathways-timeline", daemon=True).start()

    def _follow(self) -> None:
        for event in self._session.follow(self._since):
            self._events.append(event)
            self._redraw(events.view(self._events[-_SHOWN_EVENTS:]))
        self._redraw(events.view(self._events[-_SHOWN_EVENTS:], note=_end_of(self._session)), last=True)


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
            if self._session.state.is_over:
                break
            if "generation" in event.data and not self._over:
                self._start()
        self.end(_end_of(self._session))

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
                services = watch.pictures
                mine = [each for each in services if each.address.partition(":")[0] == service]
                self._services = tuple(_better(self._services, mine or services))
                if not self._session.state.is_over:
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
      details: The job to begin with.
    """

    watched: ClassVar[list[Watched]] = []
    superseded = "other jobs were shown"

    def __init__(self, shell: Any, where: ConnectConfig, details: JobDetails) -> None:
        self._where = where
        self._details = details
        super().__init__(shell)

    def _drawn(self, note: str = "") -> View:
        return jobs.details(self._details, note=note)

    async def _watch(self) -> None:
        job = self._details.job
        async with (
            clusters.explain_local_errors(self._where),
            Client(await clusters.resolve(self._where)) as client,
            contextlib.aclosing(follow(client, job.name, namespace=job.namespace)) as changes,
        ):
            async for self._details in changes:
                self._redraw(self._drawn())


class ElasticPanel(Live):
    """The run that goes on; if none does, the latest one until the next begins. A run that was followed stays, unless
    it was a short call after a longer training.

    Args:
      metrics: The metrics to draw; the first one when empty.
    """

    def __init__(self, shell: Any, metrics: Sequence[str] = ()) -> None:
        self._drawn_at = 0.0
        self._metrics = tuple(metrics)
        shown = RUNS.shown()
        self._followed = shown if shown is not None and shown.ended is None else None
        super().__init__(shell, elastic.view(shown, self._metrics))

    def _begin(self) -> None:
        RUNS.observe(self._changed)

    def _changed(self, record: Record, important: bool) -> None:
        if self._followed is None:
            self._followed = record
        elif record is not self._followed:
            # Its view stays in the notebook: another cell's run does not take its place.
            return
        if record.ended is not None and (before := RUNS.shown()) is not None and before is not record:
            # That was a short call: the training before it is shown again.
            record, self._followed = before, None
        now = time.monotonic()
        if not important and now - self._drawn_at < REDRAW_SECONDS:
            return
        if not important:
            # Only steps are many: what else happens does not hold up the one after it.
            self._drawn_at = now
        self._redraw(elastic.view(record, self._metrics))
