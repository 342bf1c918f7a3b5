"""A run's record for other programs: JSON, and the session's log.

JSON knows neither NaN nor infinity, which a diverging loss is: those values are null.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.elastic.record import LONGEST_NAME, ElasticEvent, Record

_MOST_CHANGES, _MOST_POINTS, _MOST_METRICS = 100, 60, 8
"""Bounds of a run's entry in the session's log: enough for a small view."""


def to_json(record: Record) -> str:
    """Return ``events``, ``steps`` (time, slices, metrics), ``goodput`` (seconds by category) and ``snapshots``."""
    value = {
        "run": record.id,
        "begun": record.begun,
        "ended": record.ended,
        "phase": record.phase,
        "events": [asdict(each) for each in record.events],
        "steps": [{**asdict(each), "metrics": _finite(each.metrics)} for each in record.steps],
        "goodput": {name: round(seconds, 3) for name, seconds in record.goodput.seconds().items()},
        "snapshots": [asdict(each) for each in record.goodput.snapshots],
    }
    return json.dumps(value, allow_nan=False)


def to_log(record: Record, runs: list[dict[str, Any]]) -> Event:
    """Return a run as it is now, in the form in which the session's log has it; see docs/session-protocol.md.

    Args:
      runs: The summaries of the process's runs, oldest first.
    """
    changes, metrics = record.slices[-_MOST_CHANGES:], list(record.newest.items())[:_MOST_METRICS]
    name = metrics[0][0] if metrics else ""
    data = {
        **record.summary(),
        "slices": changes[-1][1] if changes else 0,
        "total": record.total_slices,
        "changes": [[at, number] for at, number in changes],
        "metrics": {each[:LONGEST_NAME]: _number(value) for each, value in metrics},
        "curve": {
            "metric": name[:LONGEST_NAME],
            "points": [[each.step, _number(each.metrics[name])] for each in record.curve(name, _MOST_POINTS)],
        },
        "seconds": {name: round(seconds, 3) for name, seconds in record.goodput.seconds().items() if seconds >= 0.001},
        "runs": runs,
    }
    steps = f"{record.progress}, " if record.progress else ""
    message = f"Elastic training is {record.phase}: {steps}goodput {data['goodput']:.1%}."
    return Event(EventKind.ELASTIC_RUN, message, time.time(), data)


def event_to_log(record: Record, event: ElasticEvent) -> Event:
    """Return an event of a run in the form in which the session's log has it."""
    numbers = {name: value for name, value in event.data.items() if isinstance(value, int)}
    data = {
        **numbers,
        "what": event.kind,
        "tone": event.kind.tone,
        "run": record.id,
        "step": event.step,
        "slices": [*event.slices],
    }
    return Event(EventKind.ELASTIC, event.message, event.at, data)


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
