"""A run's record for other programs: JSON, and the Trace Event format, which Perfetto (ui.perfetto.dev) opens.

Neither knows NaN or infinity, which a diverging loss is: those values are null in the JSON and left out of the trace.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pathways_jupyter.elastic.record import Record


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


def to_trace(record: Record) -> str:
    """Return events as instants, and slices and metrics as counters, in microseconds since the run's begin."""
    events, steps = record.events, record.steps
    begun = min([record.begun, *(each.at for each in events), *(each.at for each in steps)])

    def at(seconds: float) -> dict[str, Any]:
        return {"pid": 1, "tid": 1, "ts": round((seconds - begun) * 1e6)}

    made: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": f"elastic training {record.id}"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "events"}},
    ]
    for event in events:
        about = {"message": event.message, "step": event.step, "slices": list(event.slices), **event.data}
        made.append({"name": event.kind, "cat": "elastic", "ph": "i", "s": "p", **at(event.at), "args": about})
    for when, count in record.slices:
        made.append({"name": "slices", "ph": "C", **at(when), "args": {"slices": count}})
    for step in steps:
        made += [
            {"name": name, "ph": "C", **at(step.at), "args": {name: value}}
            for name, value in _finite(step.metrics).items()
            if value is not None
        ]
    return json.dumps({"traceEvents": made, "displayTimeUnit": "ms"}, allow_nan=False)


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
