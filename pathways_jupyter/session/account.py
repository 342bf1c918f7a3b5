"""A session's account of itself: its record, how it was asked to be, and everything that happens to it.

Whoever works for the session tells it here; the record on disk, the log and all who listen follow.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any

from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.events import TRANSITIONS, Event, EventKind, SessionState, Stage
from pathways_jupyter.session import registry
from pathways_jupyter.session.history import History
from pathways_jupyter.session.registry import SessionRecord

logger = logging.getLogger(__name__)


class Account:
    """What is known of one session.

    Args:
      record: The session as it begins; on disk only once it is published.

    Attributes:
      record: The session as it is now.
      config: How it was asked to be.
      history: What happened, and who listens.
    """

    def __init__(self, record: SessionRecord, config: ConnectConfig) -> None:
        self.record = record
        self.config = config
        self.history = History()
        self._published = False

    def publish(self, **changes: Any) -> None:
        """Lets others find the session: from now on its record is on disk too."""
        self._published = True
        self.update(**changes)

    def update(self, **changes: Any) -> None:
        """Changes the record."""
        self.record = dataclasses.replace(self.record, **changes)
        if self._published:
            registry.write(self.record)

    def enter(self, state: SessionState, message: str, **data: Any) -> None:
        """Goes over to another state, and tells so; does nothing in that state."""
        if state is self.record.state:
            return
        if state not in TRANSITIONS[self.record.state]:
            logger.error("no way leads from %s to %s", self.record.state, state)
        self.update(state=state)
        self.report(EventKind.STATE, message, state=state, **data)

    def report(self, kind: EventKind, message: str, **data: Any) -> None:
        """Tells everybody who listens, and the log."""
        details = ", ".join(f"{name}={value}" for name, value in data.items())
        logger.info("%s: %s%s", kind, message, f" ({details})" if details else "")
        self.history.add(Event(kind, message, time.time(), data))

    def stage(self, stage: Stage, message: str, **data: Any) -> None:
        """Tells how far connecting has come."""
        self.report(EventKind.STAGE, message, stage=stage, **data)

    def waits(self, message: str) -> None:
        """Tells that slices are taken, and by whom."""
        if self.record.state is SessionState.STARTING:
            self.enter(SessionState.WAITING, message)
        else:
            self.stage(Stage.PLACE, message)

    def cleanup_waits(self, reason: str) -> None:
        """Tells that the proxy cannot be removed yet."""
        self.report(EventKind.WARNING, f"Removing the proxy has to wait: {reason}")
