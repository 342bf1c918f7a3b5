"""The timeline of a session in a notebook, live while cells run."""

from __future__ import annotations

import threading
from typing import Any

from pathways_jupyter.render import events as still
from pathways_jupyter.session.kernel.session import Session
from pathways_jupyter.widgets.live import Live

_SHOWN = 200
"""Newest events that a timeline shows."""


class Timeline(Live):
    """Past events of `session`, and new ones while this is shown, until the session ends."""

    def __init__(self, shell: Any, session: Session) -> None:
        self._events = session.events()
        self._session = session
        self._since = session.event_count
        super().__init__(shell, still.view(self._events[-_SHOWN:]))

    def _begin(self) -> None:
        # A daemon thread, so that a kernel can exit without waiting for it.
        threading.Thread(target=self._follow, name="pathways-timeline", daemon=True).start()

    def _follow(self) -> None:
        for event in self._session.follow(self._since):
            self._events.append(event)
            self._redraw(still.view(self._events[-_SHOWN:]))
        self._redraw(still.view(self._events[-_SHOWN:], note="The session has ended."), last=True)
