"""The figures that pages quote from docs/benchmarks.json; ``python -m benchmarks.figures`` writes them anew.

`make bench` ends with it, and a test fails while a page has others. A fragment of a page is a format string: its text
finds the place, and its numbers are measured values, or quotients of two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
Tables = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Values by title, row and column."""
NUMBER = r"\d[\d,]*(?:\.\d+)?"


@dataclass(frozen=True)
class Value:
    """One cell of a table, in the table's unit times `scale`, or its quotient by another one."""

    title: str
    row: str
    column: str
    scale: float = 1.0
    over: Value | None = None

    def read(self, tables: Tables) -> float:
        """Return the number.

        Raises:
          KeyError: There is no such cell.
        """
        number = tables[self.title][self.row][self.column] * self.scale
        return number if self.over is None else number / self.over.read(tables)


@dataclass(frozen=True)
class Fragment:
    """Words of a page with figures in between, on one line of it.

    Attributes:
      page: Below docs/.
      text: A format string with a placeholder for each of `values`.
    """

    page: str
    text: str
    values: tuple[Value, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        """A pattern that matches it with any figures."""
        parts = re.split(r"\{[^}]*\}", self.text)
        return re.compile(NUMBER.join(map(re.escape, parts)))

    def written(self, tables: Tables) -> str:
        """Return it with the measured figures."""
        return self.text.format(*(each.read(tables) for each in self.values))


_FAR = "At a distance: 100 ms there and back, 20 Mbit/s up and 100 down"
_UP, _DOWN, _BYTE = "up, 256 MB", "down, 256 MB", "one byte there and back"
_SUSPEND = "1 GB of arrays: saved with the proxy removed, and back with a new one"
_MEMORY = "The same: how much more memory the notebook's process has meanwhile"


def _tunnel(row: str, column: str = "ours") -> Value:
    return Value("Tunnel throughput", row, column)


def _trip(column: str, scale: float = 1.0) -> Value:
    return Value("Tunnel round trip", _BYTE, column, scale)


def _arrays(row: str, column: str = "through proxy and tunnel") -> Value:
    return Value("Arrays through the proxy", row, column)


def _dispatch(row: str, column: str = "through proxy and tunnel") -> Value:
    return Value("Dispatch through the proxy", row, column)


def _inside(row: str, column: str) -> Value:
    return Value("A notebook in the cluster: transfers", row, column)


def _tiny(column: str) -> Value:
    return Value("A notebook in the cluster: tiny operation", "jit(x + 1), waited for", column)


def _far(row: str, *columns: str) -> tuple[Value, ...]:
    return tuple(
        Value(_FAR, row, column) for column in columns or ("ours, relay", "JAX over kubectl", "in the cluster")
    )


def _far_row(words: str, row: str, formats: str) -> Fragment:
    return Fragment("distance.md", f"| {words} | {formats} |", _far(row))


def _operator(row: str) -> tuple[Value, ...]:
    columns = ("250 jobs, 125 sessions", "500 jobs, 250 sessions", "1,000 jobs, 500 sessions")
    return tuple(Value("Scale: the operator", row, column) for column in columns)


def _http2(row: str) -> Value:
    return Value("HTTP/2 of the embedded proxy", row, "grpcio", over=Value("HTTP/2 of the embedded proxy", row, "own"))


def _pages(row: str, *columns: str) -> tuple[Value, ...]:
    return tuple(Value("Scale: pages of one Jupyter server", row, column) for column in columns)


def _place(row: str, column: str) -> Value:
    return Value("The kernel's place: 100 ms there and back, 20 Mbit/s up and 100 down", row, column)


def _places(row: str, formats: str) -> Fragment:
    columns = ("here, through the tunnel", "beside the chips", "in a lab, its page here", "in a lab, by --gateway-url")
    cells = " | ".join([formats] * len(columns))
    return Fragment("beside.md", f"| {row} | {cells} |", tuple(_place(row, each) for each in columns))


_RELAY = "ours, with a relay"
_KUBECTL = "kubectl port-forward"
_DAEMON, _LOST = (
    "embedded cluster: daemon",
    "A slice is lost: from the signal that kills its worker to the next complete step",
)
FRAGMENTS = (
    Fragment(
        "data-path.md",
        "a tiny operation | {:.0f} and {:.0f} MB/s | {:.2f} ms |",
        (
            _arrays("host to device, 512 MB"),
            _arrays("device to host, 512 MB"),
            _dispatch("a tiny jit, until ready"),
        ),
    ),
    Fragment(
        "data-path.md",
        "256 MB up, down, one byte | {:.0f} and {:.0f} MB/s | {:.2f} ms |",
        (_tunnel(_UP), _tunnel(_DOWN), _trip("ours", 1e-3)),
    ),
    Fragment(
        "data-path.md",
        "with a relay | {:.0f} and {:.0f} MB/s | {:.2f} ms |",
        (_tunnel(_UP, _RELAY), _tunnel(_DOWN, _RELAY), _trip(_RELAY, 1e-3)),
    ),
    Fragment(
        "data-path.md",
        "arrays of 128 MB go up at {:,.0f} instead of {:.0f} MB/s, and come down at {:.0f} instead of {:.0f}",
        (
            _inside("up, 128 MB", "direct"),
            _inside("up, 128 MB", "with the tunnel"),
            _inside("down, 128 MB", "direct"),
            _inside("down, 128 MB", "with the tunnel"),
        ),
    ),
    Fragment(
        "in-cluster.md",
        "128 MB went up at {:,.0f} instead of {:.0f} MB/s and came down at {:.0f} instead of {:.0f} MB/s",
        (
            _inside("up, 128 MB", "direct"),
            _inside("up, 128 MB", "with the tunnel"),
            _inside("down, 128 MB", "direct"),
            _inside("down, 128 MB", "with the tunnel"),
        ),
    ),
    Fragment("in-cluster.md", "\n{:.2f} instead of {:.2f} ms.", (_tiny("direct"), _tiny("with the tunnel"))),
    Fragment(
        "limits.md",
        "512 MB to a chip through the tunnel takes {:.1f} times as long as to a CPU of the same machine",
        (
            Value(
                "Arrays through the proxy",
                "host to device, 512 MB",
                "plain CPU JAX",
                over=_arrays("host to device, 512 MB"),
            ),
        ),
    ),
    Fragment(
        "limits.md",
        "a thousand dispatches {:.0f} times",
        (
            Value(
                "Dispatch through the proxy",
                "1,000 dispatches on one device",
                "through proxy and tunnel",
                over=_dispatch("1,000 dispatches on one device", "plain CPU JAX"),
            ),
        ),
    ),
    Fragment(
        "interruptions.md",
        "| up, 256 MB | {:.0f} MB/s | {:.0f} MB/s | {:.2f} |",
        (_tunnel(_UP), _tunnel(_UP, _RELAY), Value("A relay beside the proxy", "up", _RELAY)),
    ),
    Fragment(
        "interruptions.md",
        "| down, 256 MB | {:.0f} MB/s | {:.0f} MB/s | {:.2f} |",
        (_tunnel(_DOWN), _tunnel(_DOWN, _RELAY), Value("A relay beside the proxy", "down", _RELAY)),
    ),
    Fragment(
        "interruptions.md",
        "| one byte there and back | {:.0f} us | {:.0f} us | {:.2f} |",
        (_trip("ours"), _trip(_RELAY), Value("A relay beside the proxy", "round trip", _RELAY)),
    ),
    Fragment(
        "suspend.md",
        "took {:.0f} s to suspend and {:.0f} s to resume from 100 ms away, with some megabytes of the notebook's "
        "memory; Orbax, from the notebook, {:.0f} and {:.0f} s",
        (
            Value(_SUSPEND, "suspend, resume, 100 ms away", "save"),
            Value(_SUSPEND, "suspend, resume, 100 ms away", "restore"),
            Value(_SUSPEND, "Orbax, async, from the notebook, 100 ms away", "save"),
            Value(_SUSPEND, "Orbax, async, from the notebook, 100 ms away", "restore"),
        ),
    ),
    Fragment(
        "design.md",
        "connected in {:.0f} ms | {:.0f} ms in a script that starts one; {:,.0f} ms with",
        tuple(
            Value("Connect", "connect, in all", column)
            for column in ("in a notebook", "in a script", "isc_pathways.connect")
        ),
    ),
    Fragment(
        "design.md",
        "| a process per session | {:.0f} MB of its own | {:.0f} MB for",
        (Value("Memory", "supervisor", "of its own"), Value("Memory", "kernel, with JAX", "of its own")),
    ),
    Fragment("design.md", "one byte there and back | {:.0f} us | {:.0f} us with", (_trip("ours"), _trip(_KUBECTL))),
    Fragment(
        "design.md", "| the tunnel, 256 MB up | {:.0f} MB/s | {:.0f} MB/s |", (_tunnel(_UP), _tunnel(_UP, _KUBECTL))
    ),
    Fragment("design.md", "256 MB up | {:.0f} MB/s | {:.0f} MB/s without it", (_tunnel(_UP, _RELAY), _tunnel(_UP))),
    Fragment(
        "design.md",
        "1,000 dispatches | {:.0f} ms | {:.0f} ms with grpcio",
        tuple(Value("HTTP/2 of the embedded proxy", "1,000 dispatches", column) for column in ("own", "grpcio")),
    ),
    Fragment(
        "design.md",
        "a training step of a small MLP | {:.2f} ms | {:.2f} ms on plain CPU devices",
        (
            _dispatch("a training step of a small MLP"),
            _dispatch("a training step of a small MLP", "plain CPU JAX"),
        ),
    ),
    Fragment(
        "design.md",
        "until the next step | {:.0f} ms | {:.0f} ms with `elastic_retry`, {:,.0f} ms at its defaults",
        tuple(
            Value(_LOST, row, "median")
            for row in ("train_loop, compiled ahead", "elastic_retry, minimum_slice_count=2", "elastic_retry, defaults")
        ),
    ),
    Fragment(
        "design.md",
        "memory in the notebook | {:.2f} MB | {:,.0f} MB if the notebook writes",
        (Value(_MEMORY, "hosts", "write"), Value(_MEMORY, "notebook", "write")),
    ),
    Fragment(
        "design.md",
        "1,000 slices of 4 hosts | {:.0f} ms | {:.0f} ms with 2 slices",
        tuple(
            Value("Sidebar", "from a pod's change to the pixel", column)
            for column in ("1,000 slices of 4 hosts", "2 slices")
        ),
    ),
    Fragment(
        "operations.md",
        "| {:.0f} MB more than without pages; {:.1f}, {:.1f} and {:.1f} % of a core |",
        (
            *_pages("memory beyond a server without pages, MB", "50 pages, 100 sessions"),
            *_pages("CPU, % of a core", "1 page, 100 sessions", "10 pages, 100 sessions", "50 pages, 100 sessions"),
        ),
    ),
    Fragment(
        "operations.md",
        "| {:.0f}, {:.0f} and {:.0f} MB; {:.1f}, {:.1f} and {:.1f} % of a core |",
        (*_operator("memory, MB"), *_operator("CPU, % of a core")),
    ),
    Fragment(
        "operations.md",
        "from nothing {:,.0f}, {:,.0f} and {:,.0f}; after a restart in which all changed {:,.0f}, {:,.0f} and {:,.0f}",
        (
            *_operator("all jobs reconciled from nothing, requests"),
            *_operator("all jobs reconciled after a restart, requests"),
        ),
    ),
    Fragment(
        "operations.md",
        "from nothing {:.1f}, {:.1f} and {:.1f} s; after a restart {:.1f}, {:.1f} and {:.1f} s",
        (*_operator("all jobs reconciled from nothing, s"), *_operator("all jobs reconciled after a restart, s")),
    ),
    Fragment(
        "distance.md",
        "| connect, until the first result | {:.2f} | {:.2f}, its proxy and forward were there before | {:.2f} |",
        _far("connect, until the first result"),
    ),
    _far_row("a new operation", "a new operation", "{:.2f} | {:.2f} | {:.3f}"),
    _far_row("a jitted function again", "a jitted function again", "{:.2f} | {:.2f} | {:.4f}"),
    _far_row("`device_put` of a new shape", "device_put of a new shape", "{:.2f} | {:.2f} | {:.3f}"),
    _far_row("a step with its loss printed", "a step with its loss printed", "{:.2f} | {:.2f} | {:.3f}"),
    Fragment(
        "distance.md",
        "| 64 MB up; down | {:.0f}; {:.1f} | {:.0f}; {:.1f} | {:.2f}; {:.2f} |",
        tuple(
            Value(_FAR, row, column)
            for column in ("ours, relay", "JAX over kubectl", "in the cluster")
            for row in ("64 MB up", "64 MB down")
        ),
    ),
    _far_row("a tiny operation while 16 MB go up", "a tiny operation while 16 MB go up", "{:.2f} | {:.2f} | {:.3f}"),
    _far_row(
        "a model made eagerly, 30 steps, each loss printed",
        "a model made eagerly, each loss printed",
        "{:.1f} | {:.1f} | {:.1f}",
    ),
    _far_row(
        "the same made in one jit, the last loss printed",
        "the same made in one jit, the last loss printed",
        "{:.1f} | {:.1f} | {:.1f}",
    ),
    Fragment("distance.md", "| disconnect | {:.2f} | | {:.2f} |", _far("disconnect", "ours, relay", "in the cluster")),
    Fragment(
        "distance.md",
        "took {:.1f} s beside the chips and {:.1f} s through the tunnel; there a cell was answered after {:.2f} s, "
        "Tab after {:.2f} s, an Interrupt after {:.2f} s, and a restart took {:.1f} s.",
        (
            _place("a model made eagerly, each loss printed", "beside the chips"),
            _place("a model made eagerly, each loss printed", "here, through the tunnel"),
            *(_place(row, "beside the chips") for row in ("a cell", "Tab", "Interrupt", "restart")),
        ),
    ),
    *(_places(row, "{:.2f}") for row in ("a cell", "Tab", "Interrupt", "a new operation")),
    *(_places(row, "{:.1f}") for row in ("50 steps, each loss printed", "a model made eagerly, each loss printed")),
    *(_places(row, "{:.2f}") for row in ("start of a second kernel", "restart")),
    Fragment(
        "decisions/kernel-pod.md",
        "a second kernel answers after {:.2f} s in the pod that runs, and after {:.2f} s in one of its own.",
        (
            _place("start of a second kernel", "beside the chips"),
            _place("start in a pod of its own", "beside the chips"),
        ),
    ),
    Fragment(
        "decisions/http2.md",
        "(grpcio's time over ours): {:.1f} for a\ntiny operation, {:.1f} for 1,000 dispatches, {:.1f} up, {:.1f} down.",
        tuple(_http2(row) for row in ("a tiny op", "1,000 dispatches", "512 MB up", "512 MB down")),
    ),
    Fragment(
        "decisions/tunnel.md",
        "with what is described below, {:.2f} and {:.2f} times, and {:.0f} us against {:.0f}.",
        (
            Value("Tunnel throughput", _UP, "ours", over=_tunnel(_UP, _KUBECTL)),
            Value("Tunnel throughput", _DOWN, "ours", over=_tunnel(_DOWN, _KUBECTL)),
            _trip("ours"),
            _trip(_KUBECTL),
        ),
    ),
    Fragment(
        "decisions/relay.md",
        "on a quiet machine {:.1f} ({:.0f} us beside {:.0f}) and {:.1f} ({:.0f})",
        (
            Value("Tunnel round trip", _BYTE, _RELAY, over=_trip(_KUBECTL)),
            _trip(_RELAY),
            _trip(_KUBECTL),
            Value("Tunnel round trip", _BYTE, "ours", over=_trip(_KUBECTL)),
            _trip("ours"),
        ),
    ),
    Fragment(
        "decisions/embedded-api-server.md",
        "kubelet has {:.0f} MB resident, {:.0f} of its own",
        (Value("Memory", _DAEMON, "resident"), Value("Memory", _DAEMON, "of its own")),
    ),
    *(
        Fragment(
            "decisions/direct-path.md",
            f"| {row} | {{:,.0f}} MB/s | {{:.0f}} MB/s |",
            (_inside(measured, "direct"), _inside(measured, "with the tunnel")),
        )
        for row, measured in (("128 MB up", "up, 128 MB"), ("128 MB down", "down, 128 MB"))
    ),
    Fragment(
        "decisions/direct-path.md",
        "| a tiny operation | {:.2f} ms | {:.2f} ms |",
        (_tiny("direct"), _tiny("with the tunnel")),
    ),
    Fragment(
        "decisions/supervisor.md",
        "| {:.0f} MB for a session | {:.0f} MB for its kernel",
        (Value("Memory", "supervisor", "of its own"), Value("Memory", "kernel, with JAX", "of its own")),
    ),
    Fragment(
        "decisions/supervisor.md",
        "in advance | {:.0f} ms, of which {:.0f} ms are before",
        tuple(Value("Connect", row, "in a notebook") for row in ("connect, in all", "of which before")),
    ),
    Fragment(
        "decisions/supervisor.md",
        "started then | {:.0f} ms, of which {:.0f} ms are before | {:,.0f} ms with",
        (
            *(Value("Connect", row, "in a script") for row in ("connect, in all", "of which before")),
            Value("Connect", "connect, in all", "isc_pathways.connect"),
        ),
    ),
)
"""All figures in prose that are from the benchmarks."""


def read(path: Path = DOCS / "benchmarks.json") -> Tables:
    """Return the measured values."""
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for table in json.loads(path.read_text(encoding="utf-8"))["tables"]:
        # Two tables of one title have different rows.
        tables.setdefault(table["title"], {}).update({row["name"]: row["values"] for row in table["rows"]})
    return tables


def outdated(tables: Tables) -> Iterator[tuple[Fragment, str]]:
    """Yield the fragments whose pages have other figures, with what the page has.

    Raises:
      LookupError: A fragment is not once in its page.
    """
    for each in FRAGMENTS:
        found = each.pattern.findall((DOCS / each.page).read_text(encoding="utf-8"))
        if len(found) != 1:
            raise LookupError(f"{each.page} has {len(found)} times: {each.text}")
        if found[0] != each.written(tables):
            yield each, found[0]


def main() -> None:
    """Write the figures of the latest run into the pages."""
    tables = read()
    for each, there in list(outdated(tables)):
        page, written = DOCS / each.page, each.written(tables)
        page.write_text(page.read_text(encoding="utf-8").replace(there, written), encoding="utf-8")
        print(f"{each.page}: {written}")


if __name__ == "__main__":
    main()
