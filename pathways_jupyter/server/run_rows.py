"""The rows of JSON values in which pages show the runs on many hosts.

The TypeScript types are in labextension/src/models/wire.ts: change both together.
"""

from __future__ import annotations

from typing import Any

from pathways_jupyter.multihost import records
from pathways_jupyter.multihost.records import Record

LISTED_RUNS = 50
_COMMAND_CHARACTERS = 1000


def newest() -> list[dict[str, Any]]:
    """Return the newest runs of this machine with the last known states of their hosts; asks no host."""
    return [row(record) for record in records.runs()[:LISTED_RUNS]]


def row(record: Record) -> dict[str, Any]:
    """Return what a page shows of a run.

    ``at`` is when the states of its hosts were true, in seconds since the epoch; 0 if nothing is known of them.
    """
    states = records.read_states(record)
    return {
        "id": record.id,
        "name": record.name,
        "command": record.command[:_COMMAND_CHARACTERS],
        "state": record.state,
        "code": record.code,
        "started": record.started,
        "ended": record.ended,
        "at": states.at,
        "hosts": [
            {
                "label": each.target.label,
                "name": each.target.name,
                "phase": str(each.phase),
                "over": each.phase.over,
                "code": each.exit_code,
                "last_line": each.last_line,
                "began": each.began,
                "ended": each.ended,
                "sent": each.sent,
                "total": each.total,
                "message": each.message,
                "hint": each.hint,
            }
            for each in states.hosts
        ],
    }
