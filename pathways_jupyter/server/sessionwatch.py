"""Watch this machine's sessions while a page is open: their records, and the events of their supervisors.

A session's record and supervisor disappear as soon as it has ended, which is when its user wants to read why. So the
events of sessions that were followed here stay in memory for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter.base import runtime_files
from pathways_jupyter.base.config import runtime_dir
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.events import EventKind, SessionState
from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.base.text import capitalized
from pathways_jupyter.kernel import places
from pathways_jupyter.kernel.places import KernelPlace
from pathways_jupyter.render import sessions as drawn
from pathways_jupyter.server import scope
from pathways_jupyter.service import names
from pathways_jupyter.service.feed import Feed, Message
from pathways_jupyter.session import client, registry
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.verdicts import verdicts

_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.25, 5.0
"""Between two looks at the files, the second where looks fail: no portable call waits for a change of a directory."""
STATUS_SECONDS = 2.5
"""Delay before a supervisor is queried again; a stopped one accepts connections all the while."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 5.0
"""Between two subscriptions to the events of a session whose connection breaks."""
MAX_EVENTS = 1000
"""Number of events kept per session."""
MAX_ENDED = 20
"""Number of ended sessions kept."""

logger = logging.getLogger(__name__)


@dataclass
class _Followed:
    """Reports of a session's supervisor, beside the record.

    Attributes:
      events: The newest, as JSON values.
      run: The elastic training run as it is now; empty without one.
      silent: Whether the supervisor does not answer.
      round_trip: Seconds to the cluster and back; 0 while not known.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    silent: bool = False
    round_trip: float = 0.0


class SessionWatch(Feed):
    """Publishes sessions and their events to listeners."""

    def __init__(self) -> None:
        super().__init__()
        # What the files were at the last look; None to read them in any case.
        self._seen: object = None
        # None until the first look.
        self._rows: list[dict[str, Any]] | None = None
        self._kernels: list[dict[str, Any]] = []
        self._ended: dict[str, dict[str, Any]] = {}
        self._followed: dict[str, _Followed] = {}

    def _snapshot(self) -> Iterator[Message]:
        if self._rows is not None:
            yield self._sessions()
            for session, followed in list(self._followed.items()):
                yield _message(session, followed.events, reset=True)
                if followed.run:
                    yield _elastic(session, followed.run)

    def stop(self) -> list[asyncio.Task[None]]:
        """Stop watching, and forget all but what has ended: a page that is reloaded leaves for a moment."""
        self._seen = self._rows = None
        self._followed = {session: each for session, each in self._followed.items() if session in self._ended}
        return super().stop()

    async def _watch(self) -> None:
        backoff = Backoff(_POLL_SECONDS, _LONGEST_POLL_SECONDS)
        while True:
            try:
                seen = [runtime_files.fingerprint(each) for each in (runtime_dir(), places.directory())]
                if seen != self._seen:
                    # Before reading, so that a change meanwhile causes another look.
                    self._seen = seen
                    await self._read()
                backoff.reset()
            except Exception:
                # E.g. a directory cannot be read at the moment; the next look may succeed. Forget the last look, so
                # that what was not published is not taken for unchanged.
                logger.exception("sessions of this machine")
                self._seen = None
            await backoff.wait()

    async def _read(self) -> None:
        """Read everything, and publish what has changed."""
        # Only this machine's: sockets of another machine that shares the home directory cannot be reached from here.
        records = [record for record in await asyncio.to_thread(registry.sessions) if record.is_here]
        alive = await asyncio.gather(*(asyncio.to_thread(registry.is_alive, record) for record in records))
        for record, living in zip(records, alive, strict=True):
            if living and record.id not in self._followers:
                # Known before the follower runs: a page that was here before takes what it replays for new otherwise.
                followed = self._followed.setdefault(record.id, _Followed())
                self._followers[record.id] = asyncio.create_task(self._follow(record, followed))
        rows = [
            _row(record, living, self._followed.get(record.id, _Followed()))
            for record, living in zip(records, alive, strict=True)
        ]
        kernels = [_kernel(each) for each in await asyncio.to_thread(places.read)]
        ended = self._keep_ended({record.id for record in records})
        (before, self._rows), (known, self._kernels) = (self._rows, rows), (self._kernels, kernels)
        if before is None:
            for message in self._snapshot():
                self.publish(message)
        elif ended or rows != before or kernels != known:
            self.publish(self._sessions())

    def _keep_ended(self, present: set[str]) -> bool:
        """Move sessions that are not `present` any more to the ended ones; return whether there were any."""
        gone = [row for row in self._rows or () if row["id"] not in present and row["id"] in self._followed]
        for each in gone:
            closed = SessionState.CLOSED
            words = {"state": closed, "tone": closed.tone, "word": capitalized(closed), "advice": ""}
            # Nothing can be done with it.
            over = {"state_since": time.time(), "alive": False, "slices": [], "verdicts": {}}
            self._ended[each["id"]] = {**each, **words, **over}
        for session in list(self._ended)[:-MAX_ENDED]:
            del self._ended[session]
            self._followed.pop(session, None)
        return bool(gone)

    async def _follow(self, record: SessionRecord, followed: _Followed) -> None:
        """Follow a session's events until its supervisor ends; reconnect when only the connection breaks."""
        since = time.time()
        polling = asyncio.create_task(self._poll_status(record, followed))
        try:
            async for _ in Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS):
                try:
                    await self._follow_once(record, followed, since)
                except PathwaysError as error:
                    logger.info("events of session %s: %s", record.id, error)
                except Exception:
                    logger.exception("events of session %s", record.id)
                if not await asyncio.to_thread(registry.is_alive, record):
                    break
        finally:
            polling.cancel()
            followed.silent, followed.round_trip = False, 0.0
            # This task may have been cancelled by stop() and replaced after a new start: remove only the own entry.
            if self._followers.get(record.id) is asyncio.current_task():
                del self._followers[record.id]
            # Make the next look read the records again, though no file has changed: the supervisor has ended.
            self._seen = None

    async def _poll_status(self, record: SessionRecord, followed: _Followed) -> None:
        """Find out when the supervisor does not answer, and when it does again."""
        while True:
            was = followed.silent, followed.round_trip
            present = await client.present([record])
            followed.silent = any(each.supervisor == each.silence for each in present)
            # With two digits, as every other value is news for all pages.
            followed.round_trip = float(f"{max((each.round_trip for each in present), default=0.0):.2g}")
            if (followed.silent, followed.round_trip) != was:
                # As in _follow(): no file has changed.
                self._seen = None
            await asyncio.sleep(STATUS_SECONDS)

    async def _follow_once(self, record: SessionRecord, followed: _Followed, since: float) -> None:
        events = followed.events
        # A supervisor first replays its past events; after a reconnect, most of them were read already.
        read = list(events)
        async with contextlib.aclosing(client.follow(record)) as history:
            async for event in history:
                value = event.to_json()
                if event.kind is EventKind.ELASTIC_RUN:
                    followed.run = value["data"]
                    self.publish(_elastic(record.id, value["data"]))
                    continue
                value["tone"] = event.tone
                if value in read:
                    continue
                events.append(value)
                del events[:-MAX_EVENTS]
                # Events from before this follower started are history; pages must not notify the user of them.
                self.publish(_message(record.id, [value], news=event.at >= since))

    def _sessions(self) -> dict[str, Any]:
        ended = list(self._ended.values())
        return {"type": "sessions", "sessions": self._rows, "ended": ended, "kernels": self._kernels}


def _message(session: str, events: list[dict[str, Any]], *, reset: bool = False, news: bool = False) -> Message:
    return {"type": "events", "session": session, "reset": reset, "news": news, "events": list(events)}


def _elastic(session: str, run: dict[str, Any]) -> dict[str, Any]:
    return {"type": "elastic", "session": session, "run": run}


def _kernel(place: KernelPlace) -> dict[str, Any]:
    """Return the JSON values of a kernel beside the chips for a page."""
    shown = ("kernel_id", "cluster", "ready", "message", "note", "failed")
    return {**{name: getattr(place, name) for name in shown}, "scope": dataclasses.asdict(scope.of_kernel(place))}


def _row(record: SessionRecord, alive: bool, followed: _Followed) -> dict[str, Any]:
    """Return the JSON values of a session for a page."""
    fault = record.silence if followed.silent else ""
    judged = dataclasses.replace(
        record, supervisor=fault if alive else registry.ABANDONED, round_trip=followed.round_trip
    )
    return {
        "id": record.id,
        "state": record.state,
        "state_since": record.since,
        "tone": drawn.tone_of(judged),
        "word": capitalized(drawn.state_words(judged)),
        "advice": worded(drawn.state_advice(judged, time.time()), Face.SIDEBAR),
        "facts": drawn.facts(judged),
        "slices": [dataclasses.asdict(each) for each in record.slices],
        "alive": alive,
        "silent": followed.silent,
        "kernel_id": record.kernel_id,
        "notebook": record.notebook,
        "namespace": record.namespace,
        "service": names.service_of(record.service)[0] or record.service,
        "pathways_job": record.pathways_job,
        "instances": dict(record.instances),
        "devices": drawn.chips(record),
        # A suspended session's is removed.
        "pod": "" if record.state is SessionState.SUSPENDED else record.pod,
        "suspend_after": record.suspend_after,
        "unused_since": record.unused_since,
        "suspends_at": record.suspends_at,
        "saved": dataclasses.asdict(record.saved) if record.saved is not None else None,
        "verdicts": {command: each.to_json(Face.SIDEBAR) for command, each in verdicts(judged)},
        "scope": dataclasses.asdict(scope.of_record(record)),
    }
