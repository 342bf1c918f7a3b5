"""Progress of a long step: in a notebook a card that is updated, in a terminal a line now and then.

A step that ends almost at once shows nothing. A separate thread draws, because the cell's thread is the one that waits.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pathways_jupyter.actions import cluster
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.magics.screen import Repeated, Screen
from pathways_jupyter.render.progress import CONNECTING, Progress, Titles
from pathways_jupyter.saved.arrays import Report
from pathways_jupyter.widgets.live import CellOutput

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.attempt import ConnectionAttempt
    from pathways_jupyter.session.kernel.session import Session

_BLINK_SECONDS = 0.4
"""Time before anything of connecting is shown."""
_LINE_AFTER_SECONDS, _LINE_AGAIN_SECONDS = 1.0, 10.0
"""Time before a stage has a line in a terminal, and before it has another one without news."""
_LONG_SECONDS = 2.0
"""Time before a wait other than connecting is shown."""


class Waiting:
    """Progress on the screen for as long as the ``with`` block runs.

    An exception that leaves the block is shown as a step that failed or was interrupted, if any progress was shown.

    Args:
      output: Where to draw in a notebook; below the cell when left out.
      titles: What is done.
      after: Seconds before anything is shown.

    Attributes:
      output: Where the progress is drawn in a notebook; the result may replace it.
    """

    def __init__(
        self,
        screen: Screen,
        output: CellOutput | None = None,
        titles: Titles = CONNECTING,
        after: float = _BLINK_SECONDS,
    ) -> None:
        self.output: CellOutput | None = output or (screen.new_output() if screen.in_place else None)
        self._screen = screen
        self._progress = Progress(titles=titles)
        self._lock = threading.Lock()
        self._repeated = Repeated(self._draw, name="pathways-progress", first=after)
        self._said = ("", "")
        self._said_at = 0.0
        self._asking = False

    def enter(self, stage: str, message: object = "") -> None:
        """Enter a stage, or show how far it is; callable from any thread."""
        with self._lock:
            self._progress.enter(stage, str(message))

    def connect(self, requested: ConnectConfig, variables: dict[str, Any] | None = None) -> ConnectionAttempt[Session]:
        """Start the embedded cluster if `requested` means it, and connect; raises what :meth:`through` does."""
        from pathways_jupyter.session.kernel import session

        if requested.local:
            self.enter(cluster.embedded_stage(requested))
        with cluster.Located(requested, confirm=self._confirm if self._screen.can_answer else None) as located:
            return self.through(session.attempt_connect(located, variables, revive=cluster.revive))

    def reconnect(self, config: ConnectConfig, attempt: ConnectionAttempt[Session]) -> ConnectionAttempt[Session]:
        """Start the embedded cluster if it has ended, or add slices to it; raises what :meth:`through` does.

        Asks as :meth:`connect` does, and as there what was added goes again if the attempt fails.
        """
        self.enter(cluster.embedded_stage(config))
        with cluster.Located(config, free=False, confirm=self._confirm if self._screen.can_answer else None):
            return self.through(attempt)

    def through(self, attempt: ConnectionAttempt[Session]) -> ConnectionAttempt[Session]:
        """Show the progress of `attempt`, and return it when it is connected.

        Raises:
          KeyboardInterrupt: Interrupted; everything that was created is removed. A session that was being reconnected
            stays.
          PathwaysError: Connecting failed.
        """
        with attempt:
            for event in attempt:
                with self._lock:
                    self._progress.add(event)
        return attempt

    def _confirm(self, question: str) -> bool:
        """Ask the user, without drawing over the question."""
        self._asking = True
        try:
            return self._screen.confirm(question)
        finally:
            self._asking = False

    def stop(self) -> None:
        """Stop drawing; the place can be used for the result."""
        self._repeated.stop()
        self._screen.end_passing()

    def done(self) -> None:
        """Show that all stages are complete, if any progress was shown."""
        self.stop()
        now = time.time()
        if self.output is None:
            if self._said_at:
                self._screen.line(self._progress.done_line(now))
        elif self.output.drawn:
            self.output.draw(self._progress.view(now, done=True))

    def __enter__(self) -> Waiting:
        self._repeated.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is not None and self.output is not None and self.output.drawn:
            now, how = time.time(), "interrupted" if issubclass(kind, KeyboardInterrupt) else "failed"
            self.output.draw(self._progress.view(now, how))

    def _draw(self) -> None:
        if self._asking:
            return
        now = time.time()
        with self._lock:
            if self.output is None:
                self._say(now)
                return
            view = self._progress.view(now)
        self.output.draw(view)

    def _say(self, now: float) -> None:
        step = self._progress.steps[-1] if self._progress.steps else None
        if now - (step.began if step else self._progress.began) < _LINE_AFTER_SECONDS:
            return
        news = (step.title, step.message) if step else ("", "")
        if news != self._said or now - self._said_at > _LINE_AGAIN_SECONDS:
            self._said, self._said_at = news, now
            self._screen.passing(self._progress.line(now))


@contextlib.contextmanager
def reported(screen: Screen, titles: Titles) -> Iterator[Report]:
    """Context manager over what shows the progress of something else than connecting, where it takes long.

    Raises:
      SessionError: It was interrupted.
    """
    try:
        with Waiting(screen, titles=titles, after=_LONG_SECONDS) as waiting:
            yield waiting.enter
    except KeyboardInterrupt:
        # Without the stack of what was waited for, which says nothing to the user.
        said = f"{titles.running} was interrupted."
        raise SessionError(said, hint=advice("{status} shows the session; it can be tried again.")) from None
    waiting.done()
