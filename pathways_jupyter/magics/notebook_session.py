"""This notebook's session as the magics see it: the card that shows it, and the notices about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.magics.notices import Notices
from pathways_jupyter.magics.screen import Screen
from pathways_jupyter.render.view import View
from pathways_jupyter.session.kernel import process
from pathways_jupyter.widgets.live import Place

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.trace import Trace
    from pathways_jupyter.session.registry import SessionRecord


class Connection:
    """The session of one shell, with its card and notices.

    Attributes:
      trace: The trace that is being taken, between ``profile start`` and ``profile stop``; it ends with its proxy.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.screen = Screen(shell)
        self.trace: Trace | None = None
        self._card: Place | None = None
        self._watched: Any = None
        self._notices: Notices | None = None
        self._devices: dict[int, list[str]] = {}
        self._announced = 0
        self._cells = 0

    def need(self) -> Any:
        """Return the session of this process.

        Raises:
          SessionError: There is none.
        """
        session = process.session()
        if session is None:
            raise SessionError(
                "This notebook is not connected.", hint="%pathways connect --help shows how; --local needs no cluster."
            )
        return session

    def watch(self, session: Any, card: Place | None = None) -> None:
        """Show what happens to `session` from now on, and keep its card up to date."""
        self.trace = None
        self._card = card or self._card
        self._devices = _device_kinds(session)
        if self._notices is not None:
            # After a reconnect in a cell the supervisor may be another one, whose events its thread does not get.
            again = (event for event in reversed(session.events()) if "generation" in event.data)
            self._notices.close(next(again, None) if session is self._watched else None)
        self._watched = session
        self._announced = session.event_count
        self._notices = Notices(session.follow(self._announced), self.screen, self.draw, lambda: self._cells)

    def card(self, record: SessionRecord | None = None) -> View:
        """The session's state and latest events: by `record`, or as last known, without asking its supervisor."""
        return card_of(self._watched, self._devices, record=record)

    def draw(self) -> None:
        """Redraw the card in its place.

        Events since the connection are left out: notices show them, below the cell that ran at the time.
        """
        if self._card is not None:
            self._card.draw(card_of(self._watched, self._devices, listed=self._announced))

    def move(self, place: Place) -> None:
        """Draw the session's card in `place` from now on."""
        self._card = place

    def begin_cell(self) -> None:
        """Note that another cell begins, so that later notices appear below it."""
        self._cells += 1

    def settle(self) -> None:
        """Before a cell: apply changes made to the session from outside, so that the cell finds JAX consistent."""
        session = process.session()
        if session is None:
            return
        switched = session.settle(process.variables())
        if switched is None:
            if session is not self._watched:
                self.watch(session)
            return
        from pathways_jupyter.render import array_notes

        lines = array_notes.switched(switched.unusable, switched.left)
        what = "The session was ended from outside; JAX is as it was before."
        if session.state == "lost":
            # A notice reported the loss when it happened.
            what = ""
        elif process.session() is session:
            what = "JAX uses the new proxy of the session now."
            self.watch(session)
        if what or lines:
            self.notify([what, *lines])

    def notify(self, lines: Sequence[str]) -> None:
        """Show lines as warnings; empty lines are left out."""
        from pathways_jupyter.render import array_notes

        self.screen.show(array_notes.notes([line for line in lines if line]))

    def explain_loss(self) -> None:
        """After a cell failed with an error of JAX because the proxy is gone: show the cause and the next step."""
        session = process.session()
        if session is not None and session.state == "lost":
            self.notify(["The proxy is lost. %pathways reconnect gets a new one, %pathways disconnect puts JAX back."])

    def explain_elsewhere(self) -> None:
        """After a cell failed because an array is on a device from before the session: name the arrays and the fix."""
        session = process.session()
        if session is None or not session.state.is_connected:
            return
        from pathways_jupyter.render import array_notes
        from pathways_jupyter.session.kernel.user_arrays import arrays_elsewhere

        lines = array_notes.elsewhere(arrays_elsewhere(session.devices()[0].client, process.variables()))
        if lines:
            self.notify(lines)

    def flush(self) -> None:
        """After a cell: show the notices that were kept back while it ran."""
        if self._notices is not None:
            self._notices.flush()


def card_of(
    session: Any,
    devices: Mapping[int, Sequence[str]] | None = None,
    *,
    record: SessionRecord | None = None,
    listed: int | None = None,
) -> View:
    """The card of `session` from what this process knows, without a request to the supervisor.

    Args:
      devices: Kinds of its devices by slice; by default taken from JAX, which only the main thread may do.
      record: What its supervisor has just answered.
      listed: Show only news among this many first events; by default the latest news of all events.
    """
    from pathways_jupyter.render import sessions as picture

    devices = _device_kinds(session) if devices is None else devices
    return picture.card(record or session.record, devices, session.events(), listed=listed)


def _device_kinds(session: Any) -> dict[int, list[str]]:
    return {index: [device.device_kind for device in devices] for index, devices in session.slices().items()}
