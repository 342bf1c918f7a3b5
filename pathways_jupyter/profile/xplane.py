"""The file of a trace (``*.xplane.pb``) as chips with their operations and modules.

A file has planes (a chip or a host), a plane has lines (for instance ``XLA Ops``), and a line has events.
`jax.profiler.ProfileData` reads them, but leaves out what is said once about all events of an operation: its category
and its place in the source. :func:`_about_operations` reads that from the file itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_CHIP = re.compile(r"/device:TPU:\d+")
"""The whole name of a chip's plane; its SparseCores have planes of their own, beside it."""
_HOST = "/host:"
OPERATIONS, MODULES = "XLA Ops", "XLA Modules"
"""Names of the lines of a chip's plane."""
_TRANSFER = re.compile(r"host.?to.?device|transfer.?to.?device|buffer.?from.?host|infeed|MakeArray", re.IGNORECASE)
"""In names of a host's events that bring data to its chips."""
_SHORT = re.compile(r"%?([\w.\-]+)")
"""The operation's name, which its HLO text begins with."""


@dataclass(frozen=True)
class About:
    """Facts about all events of an operation, once in a file: HLO category, place in the source, JAX's name."""

    category: str = ""
    source: str = ""
    scope: str = ""


@dataclass(frozen=True)
class TraceEvent:
    """Something that took time on a chip.

    Attributes:
      name: The operation's short name, such as ``fusion.12``, or the module's.
      begin: Nanoseconds; all events of a file have the same zero.
    """

    name: str
    begin: float
    end: float
    about: About = About()


@dataclass
class ChipTrace:
    """One chip's events, each kind in the order of their begin.

    Attributes:
      name: The plane's, such as ``TPU:0``, and its slice's where the file says it.
    """

    name: str
    operations: list[TraceEvent] = field(default_factory=list)
    modules: list[TraceEvent] = field(default_factory=list)


@dataclass
class TraceHost:
    """Content of one file.

    Attributes:
      transfers: When data was brought to the chips, as begin and end.
    """

    chips: list[ChipTrace] = field(default_factory=list)
    transfers: list[tuple[float, float]] = field(default_factory=list)


def read(content: bytes) -> TraceHost:
    """Read a file.

    Raises:
      ValueError: It is no such file.
    """
    import jax

    host = TraceHost()
    try:
        by_operation = _about_operations(memoryview(content))
        planes = list(jax.profiler.ProfileData.from_serialized_xspace(content).planes)
    except (IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError("not a trace") from error
    for plane in planes:
        if plane.name.startswith(_HOST):
            for line in plane.lines:
                host.transfers += ((e.start_ns, e.end_ns) for e in line.events if _TRANSFER.search(e.name))
        if not _CHIP.fullmatch(plane.name):
            continue
        chip = ChipTrace(f"{plane.name.removeprefix('/device:')} {dict(plane.stats).get('slice', '')}".rstrip())
        for line in plane.lines:
            events = {OPERATIONS: chip.operations, MODULES: chip.modules}.get(line.name)
            if events is None:
                continue
            operations = by_operation.get(plane.name, {})
            for event in line.events:
                facts = operations.get(event.name) or _from_stats(dict(event.stats))
                short = _SHORT.match(event.name)
                events.append(TraceEvent(short[1] if short else event.name, event.start_ns, event.end_ns, facts))
            # A parent before what is in it.
            events.sort(key=lambda each: (each.begin, -each.end))
        host.chips.append(chip)
    return host


def _from_stats(stats: Mapping[str, object]) -> About:
    # "jit(step)/layer/dot_general:" ends with the name of a type of TensorFlow, which JAX has none of.
    scope = str(stats.get("tf_op", "")).partition(":")[0]
    return About(str(stats.get("hlo_category", "")), str(stats.get("source", "")), scope)


def _about_operations(space: memoryview) -> dict[str, dict[str, About]]:
    """Return what is known about operations, by plane and the operation's name in its events.

    Numbers are those of the fields in XSpace, XPlane, XEventMetadata, XStatMetadata and XStat (``xplane.proto``). The
    lines, most of a file, are skipped.
    """
    by_name: dict[str, dict[str, About]] = {}
    for number, plane in _fields(space):
        if number != 1:
            continue
        name, events, stat_names = "", [], {}
        for number, value in _fields(plane):
            if number == 2:
                name = str(value, "utf-8")
            elif number == 4:
                events.append(dict(_fields(value))[2])
            elif number == 5:
                entry = dict(_fields(dict(_fields(value))[2]))
                stat_names[entry.get(1, 0)] = str(entry.get(2, b""), "utf-8")
        for event in events:
            operation, stats = "", {}
            for number, value in _fields(event):
                if number == 2:
                    operation = str(value, "utf-8")
                elif number == 5:
                    stat = dict(_fields(value))
                    if 5 in stat:
                        stats[stat_names.get(stat[1], "")] = str(stat[5], "utf-8")
                    elif 7 in stat:
                        stats[stat_names.get(stat[1], "")] = stat_names.get(stat[7], "")
            if stats:
                by_name.setdefault(name, {})[operation] = _from_stats(stats)
    return by_name


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protobuf message; a nested message or a text is a memoryview."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 2: -1, 5: 4}[kind]
        size = varint() if size < 0 else size
        yield key >> 3, message[at : at + size]
        at += size
