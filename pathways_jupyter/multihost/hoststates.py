"""The states of a run's hosts as last known, in a file beside the run's record.

The process that follows a run writes it, so that others (the sidebar's server, for one) can show the hosts without
connecting to them. Its age matters as much as its content: without a process that follows, it only grows older.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pathways_jupyter.multihost.events import HostStatus, Phase
from pathways_jupyter.multihost.records import Record

_LAST_LINE_CHARACTERS = 300


@dataclass(frozen=True)
class HostStates:
    """The hosts of a run.

    Attributes:
      at: When this was true, in seconds since the epoch; 0 if nothing is known.
    """

    hosts: tuple[HostStatus, ...]
    at: float = 0.0


def write(record: Record, hosts: Sequence[HostStatus]) -> None:
    """Write the states of `hosts` as those of now. A full disk is no error: the run itself is not affected."""
    path = record.states_path
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        scratch.write_text(json.dumps({"at": time.time(), "hosts": [_to_json(each) for each in hosts]}))
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)


def read(record: Record) -> HostStates:
    """Return what is known; hosts about which nothing is known are waiting."""
    try:
        found = json.loads(record.states_path.read_text(encoding="utf-8"))
        known = {each.pop("label"): each for each in found["hosts"]}
        hosts = tuple(_from_json(HostStatus(target), known.get(target.label, {})) for target in record.targets)
        return HostStates(hosts, float(found["at"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        # Not written yet, or by another version.
        return HostStates(tuple(HostStatus(target) for target in record.targets))


def _to_json(host: HostStatus) -> dict[str, object]:
    values = {field.name: getattr(host, field.name) for field in dataclasses.fields(host) if field.name != "target"}
    return {**values, "label": host.target.label, "last_line": host.last_line[:_LAST_LINE_CHARACTERS]}


def _from_json(host: HostStatus, values: dict[str, object]) -> HostStatus:
    given = {**values, "phase": Phase(str(values.get("phase", host.phase)))}
    return dataclasses.replace(host, **given)  # type: ignore[arg-type]
