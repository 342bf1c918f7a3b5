"""The figures of a session, from its record."""

from __future__ import annotations

import time

from pathways_jupyter.events import SessionState
from pathways_jupyter.service.session_figures import SessionFigures
from pathways_jupyter.session.registry import SessionRecord


def figures(record: SessionRecord) -> SessionFigures:
    """Return the figures of a session whose supervisor has just given `record`."""
    waiting = record.state is SessionState.WAITING
    # The clock may have been set back meanwhile.
    since = max(0.0, time.time() - record.state_since) if waiting else 0.0
    return SessionFigures(
        session=record.id,
        user=record.user,
        namespace=record.namespace,
        service=record.service,
        state=record.state,
        waited=round(record.waited + since, 3),
        reconnects=max(0, record.generation - 1),
        sent=None if record.direct else record.sent,
        received=None if record.direct else record.received,
    )
