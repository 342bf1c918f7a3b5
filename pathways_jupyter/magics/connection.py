"""This notebook's session as the magics see it: the card that shows it, and the notices about it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pathways_jupyter.errors import SessionError
from pathways_jupyter.magics.notices import Notices
from pathways_jupyter.magics.screen import Screen
from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.place import Place

SESSION_MODULE = "pathways_jupyter.session.kernel.session"


class Connection:
    """What one shell knows of its session."""

    def __init__(self, shell: Any, screen: Screen) -> None:
        self.shell = shell
        self.screen = screen
        self._card: Place | None = None
        self._watched: Any = None
        self._notices: Notices | None = None
        self._devices: dict[int, list[str]] = {}
        self._announced = 0
        self._cells = 0

    @property
    def session(self) -> Any:
        """The session of this process; None when there is none."""
        module = sys.modules.get(SESSION_MODULE)
        return module.current() if module is not None else None

    @property
    def variables(self) -> dict[str, Any]:
        """The user's own variables."""
        from pathways_jupyter.session.kernel import process

        return process.variables()

    def need(self) -> Any:
        """The session.

        Raises:
          SessionError: There is none.
        """
        session = self.session
        if session is None:
            raise SessionError(
                "This notebook is not connected.", hint="%pathways connect --help shows how; --local needs no cluster."
            )
        return session

    def watch(self, session: Any, card: Place | None = None) -> None:
        """Show what happens to `session` from now on, and keep its card up to date."""
        self._card = card or self._card
        self._devices = _kinds(session)
        self._watched = session
        if self._notices is not None:
            self._notices.close()
        self._announced = session.event_count
        self._notices = Notices(session.follow(self._announced), self.screen, self.draw, lambda: self._cells)

    def card(self) -> View:
        """The session as it is known without asking its supervisor, and what happened to it last."""
        return card_of(self._watched, self._devices)

    def draw(self) -> None:
        """Draw the card again where it was drawn.

        Without what happened since it was connected: notices show that, beside the cell during which it did.
        """
        if self._card is not None:
            self._card.draw(card_of(self._watched, self._devices, listed=self._announced))

    def move(self, place: Place) -> None:
        """Draw the session's card in `place` from now on."""
        self._card = place

    def begin_cell(self) -> None:
        """Note that another cell begins: from now on notices belong below it."""
        self._cells += 1

    def settle(self) -> None:
        """Before a cell: takes note of what others did to the session, so that the cell finds JAX in order."""
        session = self.session
        if session is None:
            return
        switched = session.settle(self.variables)
        if switched is None:
            if session is not self._watched:
                self.watch(session)
            return
        from pathways_jupyter.render import arrays

        lines = arrays.switched(switched.unusable, switched.left)
        what = "The session was ended from outside; JAX is as it was before."
        if session.state == "lost":
            # That it is lost was told when it happened.
            what = ""
        elif self.session is session:
            what = "The session was reconnected from outside; JAX uses its new proxy."
            self.watch(session)
        if what or lines:
            self.tell([what, *lines])

    def tell(self, lines: Sequence[str]) -> None:
        """Shows lines to be aware of; empty ones are left out."""
        from pathways_jupyter.render import arrays

        self.screen.show(arrays.notes([line for line in lines if line]))

    def explain_loss(self) -> None:
        """After a cell that JAX failed because the proxy is gone: says so in plain words."""
        session = self.session
        if session is not None and session.state == "lost":
            self.tell(["The proxy is lost. %pathways reconnect gets a new one, %pathways disconnect puts JAX back."])

    def explain_elsewhere(self) -> None:
        """After a cell that JAX failed because an array lies on a device of before: says which do, and what to do."""
        session = self.session
        if session is None or not session.state.is_connected:
            return
        from pathways_jupyter.render import arrays
        from pathways_jupyter.session.kernel.arrays import arrays_elsewhere

        lines = arrays.elsewhere(arrays_elsewhere(session.devices()[0].client, self.variables))
        if lines:
            self.tell(lines)

    def flush(self) -> None:
        """After a cell: shows what happened meanwhile."""
        if self._notices is not None:
            self._notices.flush()


def card_of(session: Any, devices: Mapping[int, Sequence[str]] | None = None, *, listed: int | None = None) -> View:
    """The card of `session`, as it is known without asking anybody.

    Args:
      devices: Kinds of its devices by slice; asked of JAX when left out, which only the user's own thread may do.
      listed: List only what is among so many first events of it; all of what happened last when left out.
    """
    from pathways_jupyter.render import session as picture

    return picture.view(
        session.record, _kinds(session) if devices is None else devices, session.events(), listed=listed
    )


def _kinds(session: Any) -> dict[int, list[str]]:
    return {index: [device.device_kind for device in devices] for index, devices in session.slices().items()}
