"""Sum up a trace: when each chip computed, which operations cost most, and what the chips waited for.

Time on a chip is divided once and for all:

- *computing* and *network*: an operation ran there; network is what moves data between chips and slices (all-reduce and
  its kind, send and receive).
- *input*: no operation ran, or one that waits for the host's data (infeed), while data was brought to the chips.
- *host*: no operation ran and no data came: nothing had been dispatched yet.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pathways_jupyter.profile.xplane import TraceEvent, TraceHost

BINS = 120
"""Number of equal pieces of the trace's time that a chip's bar has."""
_NETWORK = re.compile(
    r"all-?(reduce|gather|to-?all)|reduce-?scatter|collective|(^|[ -])(send|recv)|megascale", re.IGNORECASE
)
_INPUT = re.compile(r"infeed|outfeed", re.IGNORECASE)
_NANOSECONDS = 1e-9


class ChipActivity(StrEnum):
    """Kinds of a chip's time."""

    COMPUTING = "computing"
    NETWORK = "network"
    INPUT = "input"
    HOST = "host"


@dataclass(frozen=True)
class Operation:
    """Cost of one operation of a program, on all chips together.

    Attributes:
      name: Its name in the compiled program, such as ``fusion.12``.
      scope: JAX's name for it, such as ``jit(step)/layer/dot_general``; empty where the trace does not say.
      source: Its line in the user's code; empty where the trace does not say.
      category: XLA's, such as ``convolution``; empty where the trace does not say.
      seconds: On all chips together, without the operations inside it.
      share: Of all the time in which operations ran.
      count: Number of runs, on all chips together.
    """

    name: str
    scope: str
    source: str
    category: str
    seconds: float
    share: float
    count: int


@dataclass(frozen=True)
class Chip:
    """One chip's time.

    Attributes:
      shares: Of the trace's time, by what it was spent on; their sum is 1.
      computing, network: For each of the `BINS`, the share of its time.
    """

    name: str
    shares: dict[ChipActivity, float]
    computing: tuple[float, ...]
    network: tuple[float, ...]


@dataclass(frozen=True)
class Module:
    """A compiled program: how often the chips that ran it did, and how long that took in the mean, in seconds."""

    name: str
    runs: float
    seconds: float


@dataclass(frozen=True)
class Summary:
    """Summary of a trace.

    Attributes:
      location: Directory of its files.
      seconds: From the first event on a chip to the last one.
      chips: Each chip's time.
      shares: The mean of all chips.
      operations: All of them, the most expensive first.
      modules: All of them, the most expensive first.
      left_out: Why a part of the trace is not in here; empty if all is.
    """

    location: str
    seconds: float
    chips: tuple[Chip, ...]
    shares: dict[ChipActivity, float]
    operations: tuple[Operation, ...]
    modules: tuple[Module, ...]
    left_out: str = ""


def from_json(value: Mapping[str, Any]) -> Summary:
    """Return the summary that the terminal's command has printed as JSON."""
    # The keys of shares stay text, which equals what it was written from.
    chips = tuple(Chip(**each) for each in value["chips"])
    operations = tuple(Operation(**each) for each in value["operations"])
    modules = tuple(Module(**each) for each in value["modules"])
    return Summary(**{**value, "chips": chips, "operations": operations, "modules": modules})


def summarize(hosts: Iterable[TraceHost], location: str, left_out: str = "") -> Summary:
    """Sum up the files of a trace; without any event on a chip, `seconds` is 0."""
    hosts = list(hosts)
    costs: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    modules: dict[str, list[float]] = defaultdict(list)
    # By module, the number of chips.
    ran_on: Counter[str] = Counter()
    chips: list[Chip] = []
    times = [
        time
        for host in hosts
        for chip in host.chips
        for event in (*chip.operations, *chip.modules)
        for time in (event.begin, event.end)
    ]
    begin, end = min(times, default=0.0), max(times, default=0.0)
    for host in hosts:
        transfers = [
            (max(first, begin), min(last, end)) for first, last in host.transfers if first < end and last > begin
        ]
        for chip in host.chips:
            intervals: dict[ChipActivity, list[tuple[float, float]]] = {each: [] for each in ChipActivity}
            for event, own in _own_time(chip.operations):
                about, spent = event.about, _spent(event)
                intervals[spent] += own
                costs[event.name, about.scope, about.source, about.category].append(sum(b - a for a, b in own))
            for event in chip.modules:
                modules[event.name].append(event.end - event.begin)
            ran_on.update({event.name for event in chip.modules})
            chips.append(_chip(chip.name, intervals, transfers, begin, end))
    total = sum(map(sum, costs.values())) or 1.0
    operations = [
        Operation(*about, sum(each) * _NANOSECONDS, sum(each) / total, len(each)) for about, each in costs.items()
    ]
    ran = [
        Module(name, len(each) / ran_on[name], sum(each) / len(each) * _NANOSECONDS) for name, each in modules.items()
    ]
    return Summary(
        location,
        (end - begin) * _NANOSECONDS,
        # TPU:2 comes before TPU:10.
        tuple(sorted(chips, key=lambda each: [part.zfill(6) for part in re.split(r"(\d+)", each.name)])),
        {spent: sum(each.shares[spent] for each in chips) / max(len(chips), 1) for spent in ChipActivity},
        tuple(sorted(operations, key=lambda each: -each.seconds)),
        tuple(sorted(ran, key=lambda each: -each.runs * each.seconds)),
        left_out,
    )


def _spent(event: TraceEvent) -> ChipActivity:
    kind = f"{event.about.category} {event.name}"
    return (
        ChipActivity.NETWORK
        if _NETWORK.search(kind)
        else ChipActivity.INPUT
        if _INPUT.search(kind)
        else ChipActivity.COMPUTING
    )


def _own_time(events: Sequence[TraceEvent]) -> Iterator[tuple[TraceEvent, list[tuple[float, float]]]]:
    """Yield each event with the times in which none of the events inside it ran, such as a loop's body in the loop."""
    # Each open event, with its own times so far and the moment until which they are computed.
    within: list[tuple[TraceEvent, list[tuple[float, float]], float]] = []

    def close() -> tuple[TraceEvent, list[tuple[float, float]]]:
        event, own, until = within.pop()
        if event.end > until:
            own.append((until, event.end))
        if within:
            outer, outer_own, outer_until = within[-1]
            within[-1] = (outer, outer_own, max(outer_until, event.end))
        return event, own

    for event in events:
        while within and within[-1][0].end <= event.begin:
            yield close()
        if within:
            outer, own, until = within[-1]
            if event.begin > until:
                own.append((until, event.begin))
            within[-1] = (outer, own, max(until, event.begin))
        within.append((event, [], event.begin))
    while within:
        yield close()


def _chip(
    name: str,
    intervals: dict[ChipActivity, list[tuple[float, float]]],
    transfers: Sequence[tuple[float, float]],
    begin: float,
    end: float,
) -> Chip:
    length = (end - begin) or 1.0
    computing, network = (
        _binned(intervals[each], begin, end) for each in (ChipActivity.COMPUTING, ChipActivity.NETWORK)
    )
    busy = _union(interval for each in intervals.values() for interval in each)
    # A transfer beside an operation made no chip wait.
    waiting = _length(_union([*busy, *transfers])) - _length(busy)
    shares = {
        each: _length(_union(intervals[each])) / length for each in (ChipActivity.COMPUTING, ChipActivity.NETWORK)
    }
    shares[ChipActivity.INPUT] = (_length(_union(intervals[ChipActivity.INPUT])) + waiting) / length
    shares[ChipActivity.HOST] = max(0.0, 1.0 - sum(shares.values()))
    return Chip(name, shares, computing, network)


def _binned(intervals: Iterable[tuple[float, float]], begin: float, end: float) -> tuple[float, ...]:
    width = (end - begin) / BINS or 1.0
    shares = [0.0] * BINS
    for first, last in _union(intervals):
        at = int((first - begin) / width)
        while at < BINS and begin + at * width < last:
            inside = min(last, begin + (at + 1) * width) - max(first, begin + at * width)
            shares[at] += max(0.0, inside) / width
            at += 1
    return tuple(shares)


def _union(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _length(intervals: Iterable[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in intervals)
