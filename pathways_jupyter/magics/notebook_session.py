"""This notebook's session as the magics see it: the card that shows it, and the notices about it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.magics.notices import Notices
from pathways_jupyter.magics.screen import Screen
from pathways_jupyter.render.view import View
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.verdicts import Does, SessionCommand, SessionVerdict, verdict
from pathways_jupyter.widgets.live import CellOutput

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session
    from pathways_jupyter.session.registry import SessionRecord

GONE = ("UNAVAILABLE", "Array has been deleted")
"""Contained in JAX's errors about a proxy that it can no longer reach and about what was on it, among others."""
_DATA_LOSS = "DATA_LOSS"
"""Contained in JAX's errors about an array of a slice that was lost."""
_CONNECTION = "IFRT proxy server"
"""Contained in JAX's errors about a proxy that it cannot reach."""
_REACH_SECONDS = 2.0


class NotebookSession:
    """The session of one shell, with its card and notices.

    Attributes:
      resumed: What was said of the arrays that came back since the cell began; empty if none did.
      began: When the extension was loaded, in seconds since 1970.
      is_reminded: Whether saves of earlier kernels were looked for.
      submodules: Names of those that cells had imported before the kernel moved here, which no variable has.
      on_draw: Called whenever the session may have changed, on any thread.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.screen = Screen(shell)
        self.resumed = ""
        self.began = time.time()
        self.is_reminded = False
        self.submodules = set[str]()
        self.on_draw: Callable[[], None] = lambda: None
        self._card: CellOutput | None = None
        # What the card shows, and since when.
        self._shown: tuple[SessionRecord, float] | None = None
        self._watched: Any = None
        self._notices: Notices | None = None
        self._devices: dict[int, list[str]] = {}
        self._announced = 0
        self._elsewhere = ""
        self._cells = 0
        # None while one runs.
        self._cell_ended: float | None = None
        # Why it is to be suspended soon: empty where its user wants it, None where it is not to be.
        self._suspends_for: str | None = None

    def need(self, command: SessionCommand | None = None) -> Session:
        """Return the session of this process, once `command` can act on it; waits for what comes by itself.

        Args:
          command: What is to be done with it; None for what any session does.

        Raises:
          SessionError: There is none, or it refuses.
        """
        while True:
            session: Session | None = process.session()
            if session is None:
                raise verdict(None, command or SessionCommand.RUN).error()
            since = session.event_count
            if command is None or (answer := session.verdict(command)).acts:
                return session
            if answer.does is Does.REFUSES:
                raise answer.error()
            if session.state is SessionState.INTERRUPTED:
                # JAX itself waits.
                self.screen.say(answer.sentence)
                return session
            self.wait(session, answer, since)

    def wait(self, session: Session, answer: SessionVerdict, since: int) -> None:
        """Say why a command waits, then wait until the session's state is another one than at event number `since`."""
        self.screen.say(f"{answer.sentence} {worded(answer.hint, self.screen.face)}")
        next((event for event in session.follow(since) if "state" in event.data), None)
        self.settle()

    @property
    def latest(self) -> Session:
        """The session of this process; the last one while there is none.

        Raises:
          SessionError: There has been none.
        """
        session: Session | None = process.session() or self._watched
        return session or self.need()

    def end_trace(self, say: Callable[[str], None]) -> None:
        """Stop the trace that is being taken, because its proxy ends now, and say what became of it."""
        session: Session | None = process.session()
        if session is not None and (became := session.end_trace()):
            say(became)

    def watch(self, session: Any, card: CellOutput | None = None) -> None:
        """Show what happens to `session` from now on, and keep its card up to date."""
        if card is not None:
            self.move(card)
        self._devices = _device_kinds(session)
        if self._notices is not None:
            # After a reconnect in a cell the supervisor may be another one, whose events its thread does not get.
            again = (event for event in reversed(session.events()) if "generation" in event.data)
            self._notices.close(next(again, None) if session is self._watched else None)
        if self.screen.in_place:
            session.suspender.on_request(self._idle_seconds, self._suspend_soon)
        session.suspender.on_transfer = self.draw
        self._watched = session
        self._announced = session.event_count
        self._notices = Notices(session.follow(self._announced), self.screen, self.draw, lambda: self._cells)

    def close(self) -> None:
        """Show nothing more of what happens to the session, which stays."""
        if self._notices is not None:
            self._notices.close()

    def card(self, record: SessionRecord | None = None) -> View:
        """Return the session's state and latest events: by `record`, or as last known, without a request."""
        return card_of(self._watched, self._devices, record=record)

    def draw(self) -> None:
        """Redraw the card in its place.

        Events since the connection are left out: notices show them, below the cell that ran at the time.
        """
        if self._card is not None:
            record = self._watched.record
            self._shown = record, time.time()
            self._card.draw(card_of(self._watched, self._devices, record=record, listed=self._announced, live=True))
        self.on_draw()

    def move(self, output: CellOutput) -> None:
        """Draw the session's card in `output` from now on; where it was, it stays as it was last."""
        before, self._card = self._card, output
        if before is not None and before is not output and self._shown is not None:
            record, at = self._shown
            before.draw(card_of(self._watched, self._devices, record=record, listed=self._announced, at=at))

    def begin_cell(self) -> None:
        """Note that another cell begins, so that later notices appear below it."""
        self._cells += 1
        self._cell_ended = None
        if self._suspends_for:
            # It is used again. What its user wants stays.
            self._suspends_for = None
        self.resumed = ""
        self.keep()

    def keep(self) -> None:
        """Count a session as used in which nothing was computed for long."""
        if self._watched is not None and self._watched.record.unused_since:
            self._watched.keep()

    def end_cell(self) -> None:
        """Note that the cell has ended, and show the notices that were kept back while it ran."""
        self._cell_ended = boot_seconds()
        elsewhere = self._watched.elsewhere if self._watched is not None else ""
        if elsewhere != self._elsewhere:
            self._elsewhere = elsewhere
            self.draw()
        if self._notices is not None:
            self._notices.flush()
        if self._suspends_for is not None:
            self._begin_suspend()

    def _idle_seconds(self) -> float:
        loss = sys.modules.get("pathways_jupyter.colocated.loss")
        if self._cell_ended is None or (loss is not None and loss.is_waited_for()):
            return 0.0
        return boot_seconds() - self._cell_ended

    def _suspend_soon(self, why: str, after_cell: bool = False) -> dict[str, bool] | None:
        runs = self._cell_ended is None
        if runs and not after_cell:
            return None
        self._suspends_for = why
        if not runs:
            self._begin_suspend()
        return {"after_cell": runs}

    def _begin_suspend(self) -> None:
        # On the thread that runs cells, before the next one.
        self.shell.kernel.io_loop.add_callback(self._suspend)

    @interrupts.count_sigint()
    def _suspend(self) -> None:
        """Suspend, as was asked for; what cannot be kept keeps the session."""
        session, why = process.session(), self._suspends_for
        if session is None or why is None or self._cell_ended is None:
            # A cell that has begun keeps an unused session, and one that was to be suspended until it has ended.
            return
        self._suspends_for = None
        try:
            self.end_trace(lambda words: self.notify([words]))
            suspension = session.suspend()
        except (PathwaysError, KeyboardInterrupt) as error:
            problem = f"{error} {worded(error.hint, Face.NOTEBOOK)}".strip() if isinstance(error, PathwaysError) else ""
            session.suspender.report_failure(problem or "It was interrupted.")
            self.notify([f"{why} The session is not suspended. {problem or 'It was interrupted.'}".strip()])
            return
        self.draw()
        self.notify([f"{why} Suspended: {suspension} saved, the slices are free. %pathways resume continues.".strip()])

    def settle(self) -> None:
        """Before a cell: apply changes made to the session from outside, so that the cell finds JAX consistent."""
        session = process.session()
        if session is None:
            return
        if not session.has_devices:
            self.end_trace(lambda words: self.notify([words]))
        switched = session.settle(process.variables())
        if switched is None:
            if session is not self._watched:
                self.watch(session)
            return
        from pathways_jupyter.render import arrays

        lines = arrays.switched(switched.unusable, switched.left)
        # A notice has reported the loss of a proxy when it happened.
        what = ""
        if process.session() is not session:
            what = "The session was ended from outside; JAX is as it was before."
            if saved_as := session.suspender.save_name:
                what += f" Its arrays stay in the save {saved_as}: %pathways load {saved_as}, in another session."
        elif switched.cleared:
            what = "JAX's backends were cleared. JAX has connected to the proxy anew."
        elif session.has_devices:
            what = "JAX uses the new proxy of the session now."
            self.watch(session)
            if session.is_suspended:
                # A session that has a proxy and not its arrays would surprise the cell.
                what = self._restored()
        if what or lines:
            self.notify([what, *lines])

    def _restored(self) -> str:
        try:
            return self.restore()
        except (PathwaysError, KeyboardInterrupt) as error:
            why = "this was interrupted" if isinstance(error, KeyboardInterrupt) else error
            return f"The arrays of the suspended session are not back: {why} %pathways resume brings them back."

    def restore(self, *, yes: bool = False) -> str:
        """Put the arrays of a suspended session, which has a new proxy, where they were; return what to say."""
        from pathways_jupyter.magics.waiting import reported
        from pathways_jupyter.render.progress import RESUMING

        with reported(self.screen, RESUMING) as report:
            suspension = self.need(SessionCommand.RESUME).suspender.restore(yes=yes, report=report)
        self.resumed = f"Resumed: {suspension.outcome}"
        return self.resumed

    def notify(self, lines: Sequence[str]) -> None:
        """Show lines as warnings; empty lines are left out."""
        from pathways_jupyter.render import arrays

        self.screen.show(arrays.notes([line for line in lines if line]))

    def misuse(self, error: str) -> list[str]:
        """Return what to say of an error of JAX about a proxy or a slice that the session does not have now.

        Empty for others.
        """
        session: Session | None = process.session()
        if session is not None and _DATA_LOSS in error:
            from pathways_jupyter.elastic.errors import slices_named
            from pathways_jupyter.render import arrays

            return arrays.of_lost_slices(session.record.slices, slices_named(error), self.screen.face)
        if not any(each in error for each in GONE):
            return []
        # One that was ended while the cell ran has no other command for it.
        command = SessionCommand.RUN if session is not None and session.state.is_over else SessionCommand.USE
        answer = None if session is None else session.verdict(command)
        if answer is not None and answer.does is Does.REFUSES:
            return [answer.sentence, worded(answer.hint, self.screen.face)]
        from pathways_jupyter.render import arrays
        from pathways_jupyter.session.kernel.user_arrays import lost_arrays

        ended = self._watched if session is None else None
        return arrays.lost(
            lost_arrays(process.variables(), error),
            saved_as="" if ended is None else ended.suspender.save_name,
            kept=() if session is None else session.suspender.kept,
        )

    def explain_loss(self, error: str) -> None:
        """After a cell failed with an error of JAX because a proxy is gone: show the cause and the next step."""
        session = process.session()
        if said := self.misuse(error):
            self.notify(said)
        elif _CONNECTION in error and session is not None and _works(session):
            what = "This program was compiled for a proxy that is gone, or uses something that was on it."
            self.notify([what, "Compile it again, and make again what it uses."])
        elif _CONNECTION in error and session is not None:
            what = "JAX has lost its connection to the proxy, or this program was compiled for a proxy that is gone."
            next_step = "%pathways reconnect gets a new proxy; a program of an earlier one has to be compiled again."
            self.notify([what, f"%pathways status shows the session. {next_step}"])

    def explain_elsewhere(self) -> None:
        """After a cell failed because an array is on a device from before the session: name the arrays and the fix."""
        session = process.session()
        if session is None or not session.state.is_connected:
            return
        from pathways_jupyter.render import arrays
        from pathways_jupyter.session.kernel.user_arrays import arrays_elsewhere

        lines = arrays.elsewhere(arrays_elsewhere(session.devices()[0].client, process.variables()))
        if lines:
            self.notify(lines)


def _works(session: Session) -> bool:
    """Return whether JAX reaches the proxy of a session, within some seconds."""
    import jax

    from pathways_jupyter.base import tasks

    up = {each.index for each in session.record.slices if each.up}
    devices = [device for index, those in session.slices().items() if index in up for device in those]

    def reach() -> None:
        jax.block_until_ready(jax.device_put(0, devices[0]))

    if not devices:
        return False
    try:
        tasks.abandonable(reach, name="pathways-reach", seconds=_REACH_SECONDS)
    except (RuntimeError, TimeoutError, PathwaysError):
        return False
    return True


def card_of(
    session: Any,
    devices: Mapping[int, Sequence[str]] | None = None,
    *,
    record: SessionRecord | None = None,
    listed: int | None = None,
    at: float | None = None,
    live: bool = False,
) -> View:
    """Return the card of `session` from what this process knows, without a request to the supervisor.

    Args:
      devices: Kinds of its devices by slice; by default taken from JAX, which only the main thread may do.
      record: What its supervisor has just answered.
      listed: Show only news among this many first events; by default the latest news of all events.
      at: When `record` was true; by default now.
      live: Whether the card is drawn again when something changes.
    """
    from pathways_jupyter.render import sessions as render

    devices = _device_kinds(session) if devices is None else devices
    record, elsewhere = record or session.record, session.elsewhere
    return render.card(record, devices, session.events(), elsewhere=elsewhere, listed=listed, at=at, live=live)


def _device_kinds(session: Any) -> dict[int, list[str]]:
    return {index: [device.device_kind for device in devices] for index, devices in session.slices().items()}
