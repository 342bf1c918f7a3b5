"""The timeline of a session in a notebook, live while cells run."""

from __future__ import annotations

import threading
from typing import Any

from pathways_jupyter.render import events as still
from pathways_jupyter.session.session import Session
from pathways_jupyter.widgets import picture

SHOWN = 200
"""Newest events that a timeline shows."""


class Timeline:
    """What happened to `session`, and what happens while this is shown.

    It follows the session on a thread until the session ends. Where no widgets can be shown it is a still picture.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._widget: Any = None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        known = self._session.events()
        if self._widget is None and picture.can_show_widgets():
            self._widget = picture.make("events", [event.to_json() for event in known][-SHOWN:])
            follower = threading.Thread(target=self._follow, args=(len(known),), name="pathways-timeline", daemon=True)
            follower.start()
        return picture.bundle(still.view(known), self._widget)

    def __repr__(self) -> str:
        return still.view(self._session.events()).text

    def _follow(self, since: int) -> None:
        for event in self._session.follow(since):
            # A new list: a trait that is changed in place tells nobody.
            self._widget.rows = [*self._widget.rows, event.to_json()][-SHOWN:]
        self._widget.note = "The session has ended."
