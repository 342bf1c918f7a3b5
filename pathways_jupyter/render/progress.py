"""The progress of connecting, or of what else takes long: the current stage, its duration, and what it waits for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from pathways_jupyter.base.events import Event, EventKind, SessionState, Stage
from pathways_jupyter.base.tones import Mark, Tone
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import Part, as_of, card, head, line, muted, table, toned
from pathways_jupyter.render.view import View, drawn

TITLES = {
    Stage.JOB: "wait for the job",
    Stage.DISCOVER: "find free slices of the service",
    Stage.CREATE: "create the proxy",
    Stage.QUEUE: "wait in the queue",
    Stage.START: "start the proxy pod",
    Stage.PLACE: "place the slices",
    Stage.TUNNEL: "open the tunnel",
    Stage.JAX: "point JAX at it",
}


_DIRECT = "reach the proxy without a tunnel"


class Titles(NamedTuple):
    """Headlines: while connecting, after a failure, and at the end."""

    running: str
    failed: str
    done: str


CONNECTING = Titles("Connecting", "Not connected", "Connected")
RESUMING = Titles("Resuming", "Not resumed", "Resumed")
SUSPENDING = Titles("Suspending", "Not suspended", "Suspended")
SAVING = Titles("Saving", "Not saved", "Saved")
LOADING = Titles("Loading", "Not loaded", "Loaded")
FETCHING = Titles("Fetching", "Not fetched", "Fetched")
_LEFT_BEHIND = "If this no longer changes, %pathways status shows what became of it."


@dataclass
class Step:
    """One stage that was reached."""

    title: str
    began: float
    message: str = ""
    ended: float = 0.0

    def seconds(self, now: float) -> float:
        """Return the elapsed time, or the whole time once it is done."""
        return (self.ended or now) - self.began


@dataclass
class Progress:
    """The stages and warnings received so far; user interfaces redraw it as it grows."""

    began: float = field(default_factory=time.time)
    steps: list[Step] = field(default_factory=list)
    warnings: list[Event] = field(default_factory=list)
    waiting: bool = False
    """True while other sessions hold the slices, and this one waits for them."""
    titles: Titles = CONNECTING

    def add(self, event: Event) -> None:
        """Record one event of the connecting session."""
        if event.kind is EventKind.WARNING:
            self.warnings.append(event)
        elif event.kind is EventKind.STAGE:
            title = TITLES.get(event.data.get("stage"), str(event.data.get("stage")))  # type: ignore[arg-type]
            if event.data.get("direct"):
                title = _DIRECT
            if event.data.get("stage") == Stage.TUNNEL and self.waiting:
                # Opened while the slices are still awaited, which stays what the user waits for.
                if title not in {step.title for step in self.steps}:
                    self.steps.insert(-1, Step(title, event.at, event.message, ended=event.at))
                return
            self.waiting = self.waiting and event.data.get("stage") == Stage.PLACE
            self.enter(title, event.message, at=event.at)
        elif event.data.get("state") == SessionState.WAITING:
            self.waiting = True
            self.enter(TITLES[Stage.PLACE], event.message, at=event.at)
        elif self.steps and event.kind in {EventKind.STATE, EventKind.SLICE_PLACED}:
            self.steps[-1].message = event.message

    def enter(self, title: str, message: str = "", *, at: float | None = None) -> None:
        """Enter the stage `title`; repeating the current stage only updates its message."""
        at = time.time() if at is None else at
        if not self.steps or self.steps[-1].title != title:
            if self.steps:
                self.steps[-1].ended = at
            self.steps.append(Step(title, at))
        self.steps[-1].message = message

    def line(self, now: float, stopped: str = "") -> str:
        """Return the current stage, on one line.

        Args:
          now: Seconds since the epoch.
          stopped: How it ended, if it did not succeed.
        """
        mark = Mark.FAIL if stopped else Mark.WAIT
        if not self.steps:
            return f"{mark} {stopped or 'starting'} ({text.duration(now - self.began)})"
        step = self.steps[-1]
        why = stopped or step.message
        return f"{mark} {step.title} ({text.duration(step.seconds(now))}){f': {why}' if why else ''}"

    def done_line(self, now: float) -> str:
        """Return a summary of the completed connection, on one line."""
        why = self.steps[-1].message if self.steps else ""
        return f"{Mark.OK} {self.titles.done.lower()} ({text.duration(now - self.began)}){f': {why}' if why else ''}"

    def view(self, now: float, stopped: str = "", *, done: bool = False) -> View:
        """All stages; the last one is running, failed or complete.

        Args:
          now: Seconds since the epoch.
          stopped: How it ended, if it did not succeed.
          done: The last stage is complete as well.
        """
        title, tone = self.titles.running, Tone.WAIT
        if stopped or done:
            title, tone = (self.titles.failed, Tone.FAIL) if stopped else (self.titles.done, Tone.OK)
        rows, lines = [], []
        for step in self.steps:
            last, took = step is self.steps[-1], text.duration(step.seconds(now))
            why = (stopped or step.message) if last else ""
            rows.append((toned(tone if last else Tone.OK), step.title, muted(took), why))
            if done or not last:
                lines.append(f"{Mark.OK} {step.title} ({took})")
        lines.append(self.done_line(now) if done else self.line(now, stopped))
        warned = [line(toned(Tone.WARN), each.message) for each in self.warnings]
        rich = card(tone, head(title, muted(text.duration(now - self.began))), table((), rows), *warned).html
        if not stopped and not done:
            # A kernel that is restarted or killed meanwhile leaves this as the cell's output.
            lines.append(f"As of {text.moment(now)}. {_LEFT_BEHIND}")
            rich += as_of(_LEFT_BEHIND).html
        return drawn(None, Part("\n".join(lines), rich))
