"""Format a call's results for a notebook: every line labelled by host, equal values shown once.

Nothing is displayed here: user interfaces take the pieces and display them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter.base.text import size
from pathways_jupyter.colocated.errors import name_hosts
from pathways_jupyter.colocated.results import CallResult, Display, HostResult, Text


@dataclass(frozen=True)
class Piece:
    """One thing to show.

    Attributes:
      stream: ``stdout`` or ``stderr`` for text; empty for a display.
      text: Whole lines, each under its host's name.
      data: A display by MIME type.
    """

    stream: str
    text: str = ""
    data: Mapping[str, str | bytes] = field(default_factory=dict)


class Values(Mapping[int, Any]):
    """The value of a cell's last expression on every host: a mapping by host index that shows itself.

    Equal pictures are shown once.
    """

    def __init__(self, result: CallResult) -> None:
        self._values = {each.host.index: each for each in result.hosts}
        self._shown = [(each.host.index, _value(each)) for each in result.hosts]

    def __getitem__(self, host: int) -> Any:
        return self._values[host].value

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        lines = []
        for label, shown in self._groups():
            text = str(shown.data.get("text/plain", "")) if shown else "(no value)"
            lines.append(f"[{label}] {text}" if "\n" not in text else f"[{label}]\n{text}")
        return "\n".join(lines)

    @property
    def rich(self) -> bool:
        """Return whether some host's value is more than text."""
        return any(shown is not None and set(shown.data) != {"text/plain"} for _, shown in self._shown)

    def pieces(self) -> Iterator[Piece]:
        """Return the values as displays, each after its label."""
        for label, shown in self._groups():
            if shown is not None:
                yield Piece("stdout", f"[{label}]\n")
                yield Piece("", data=shown.data)
                yield from _left(label, shown)

    def _groups(self) -> list[tuple[str, Display | None]]:
        """Return what is shown of equal values, under the names of their hosts."""
        groups: list[tuple[list[int], Display | None]] = []
        for index, shown in self._shown:
            data = shown and shown.data
            group = next((indices for indices, other in groups if (other and other.data) == data), None)
            if group is None:
                groups.append(([index], shown))
            else:
                group.append(index)
        return [(name_hosts(indices), shown) for indices, shown in groups]


def values(result: CallResult) -> Values | None:
    """Return the cell's value; None when no host has one."""
    return Values(result) if any(_value(each) is not None for each in result.hosts) else None


def output(
    result: CallResult,
    *,
    shown: Mapping[int, Sequence[str]] | None = None,
    quiet: bool = False,
    collapse: bool = False,
) -> Iterator[Piece]:
    """Return what hosts printed and displayed, host after host.

    Args:
      result: The call.
      shown: The lines of each host that were shown while the call ran.
      quiet: Leave out what was printed.
      collapse: Show hosts with equal output once.
    """
    groups: list[list[HostResult]] = []
    for each in result.hosts:
        alike = (group for group in groups if group[0].items == each.items and group[0].size == each.size)
        same = next(alike, None) if collapse else None
        if same is None:
            groups.append([each])
        else:
            same.append(each)
    for group in groups:
        first, before = group[0], list((shown or {}).get(group[0].host.index, ()))
        # No line is left out if the log had gaps from which they were shown.
        lines = [line.text for line in itertools.islice(first.lines(), len(before))]
        skip = len(before) if lines == before else 0
        yield from _of_host(name_hosts([each.host.index for each in group]), first, skip, quiet)


def _of_host(label: str, result: HostResult, skip: int, quiet: bool) -> Iterator[Piece]:
    """Return what one host printed and displayed, without the first `skip` lines."""
    pending: list[Text] = []

    def printed() -> Iterator[Piece]:
        nonlocal skip
        lines = list(HostResult(result.host, tuple(pending)).lines())
        pending.clear()
        if not quiet:
            for stream, run in itertools.groupby(lines[skip:], lambda line: line.stream):
                yield Piece(stream, "".join(f"[{label}] {line.text}\n" for line in run))
            skip = max(0, skip - len(lines))

    for item in result.items:
        if isinstance(item, Text):
            pending.append(item)
            continue
        yield from printed()
        if not item.value:
            yield Piece("stdout", f"[{label}]\n")
            yield Piece("", data=item.data)
            yield from _left(label, item)
    yield from printed()
    if result.tail and not quiet:
        inside = sum(len(item.text.encode()) for item in result.items if isinstance(item, Text))
        yield Piece("stderr", f"[{label}] ... {size(result.size - inside)} more were printed. The end of it:\n")
        tail = result.tail.rstrip("\n").split("\n")
        yield Piece("stdout", "".join(f"[{label}] {line}\n" for line in tail))


def _left(label: str, item: Display) -> Iterator[Piece]:
    for kind, bytes_ in item.left.items():
        yield Piece("stderr", f"[{label}] {kind} of {size(bytes_)} is too large to show here.\n")


def _value(result: HostResult) -> Display | None:
    last = result.items[-1] if result.items else None
    return last if isinstance(last, Display) and last.value else None
