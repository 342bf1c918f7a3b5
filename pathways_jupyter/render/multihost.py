"""Runs on many hosts as tables: the hosts of one run, all runs, what a dry run found, and queued resources."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from html import escape

from pathways_jupyter.base.text import size
from pathways_jupyter.multihost.output import tail
from pathways_jupyter.multihost.pack import Packed
from pathways_jupyter.multihost.queued_resources import Queued
from pathways_jupyter.multihost.records import Record
from pathways_jupyter.multihost.run_actions import HostReport
from pathways_jupyter.multihost.run_events import HostStatus, Phase
from pathways_jupyter.render import html, text
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View

_MARKS = {Tone.OK: Mark.OK, Tone.WAIT: Mark.WAIT, Tone.FAIL: Mark.FAIL, Tone.NONE: Mark.NONE}
_LINE_LENGTH = 100
_LOG_LINES = 200


def hosts(record: Record, statuses: Sequence[HostStatus], *, logs: bool = False, now: float | None = None) -> View:
    """The hosts of a run: state, elapsed time, exit code and last line; with `logs` each host's log unfolds."""
    now = time.time() if now is None else now
    headers = ("", "host", "name", "state", "for", "exit code", "last line")
    rows = [_row(each, now) for each in statuses]
    head = f"Run {record.name}: {_summary(statuses)}"
    notes = [f"{each.message} {each.hint}".strip() for each in statuses if each.message]
    parts = [html.line(f"<b>{escape(head)}</b>")]
    rich = [
        [html.toned(_tone(each), row[3]) if column == 3 else escape(cell) for column, cell in enumerate(row) if column]
        for each, row in zip(statuses, rows, strict=True)
    ]
    parts.append(html.table(headers[1:], rich))
    parts += [html.line(html.toned(Tone.FAIL, note)) for note in notes]
    parts.append(html.line(html.muted(f"Logs: {record.logs}")))
    if logs:
        parts += [_unfolding(record, each) for each in statuses]
    parts.append(html.as_of(now))
    plain = "\n".join([head, text.table(headers, rows), *notes, f"Logs: {record.logs}"])
    value = {"run": replace(record, hosts=()), "hosts": list(statuses)}
    return View(value, plain, html.page(*parts))


def runs(records: Sequence[Record], now: float | None = None) -> View:
    """All runs of this machine."""
    now = time.time() if now is None else now
    if not records:
        none = "No runs on this machine."
        return View([], none, html.page(html.line(html.muted(none)), html.as_of(now)))
    headers = ("run", "state", "exit code", "hosts", "age", "command")
    rows = [
        (
            each.name,
            each.state,
            "" if each.code is None else str(each.code),
            str(len(each.targets)),
            text.duration(now - each.started),
            _short(" ".join(each.command.split()), 60),
        )
        for each in records
    ]
    rich = html.table(headers, [[escape(cell) for cell in row] for row in rows])
    value = [{**each.__dict__, "state": each.state} for each in records]
    return View(value, text.table(headers, rows), html.page(rich, html.as_of(now)))


def reports(found: Sequence[HostReport], packed: Packed | None = None, command: str = "") -> View:
    """What is on the hosts, and what a run would send, end and do."""
    headers = ("", "host", "name", "Python", "to send", "TPU held by")
    rows = []
    for each in found:
        held = ", ".join(f"{holder.pid} ({_short(holder.command, 40)})" for holder in each.holders)
        missing = "" if each.missing is None else size(each.missing)
        mark = Mark.FAIL if each.error else Mark.OK
        rows.append((mark, each.target.label, each.target.name, each.python, missing, held))
    lines = [f"{packed.root}: {text.count(len(packed.files), 'file')}, {size(packed.size)}."] if packed else []
    lines += [f"Would not be sent: {each}" for each in packed.skipped] if packed else []
    lines += [f"Would run: {command}"] if command else []
    problems = [f"{each.error} {each.hint}".strip() for each in found if each.error]
    rich = html.table(headers[1:], [[escape(cell) for cell in row[1:]] for row in rows])
    body = [html.line(escape(each)) for each in lines] + [html.line(html.toned(Tone.FAIL, each)) for each in problems]
    value = {"hosts": list(found), "files": len(packed.files) if packed else None, "command": command}
    return View(value, "\n".join([text.table(headers, rows), *lines, *problems]), html.page(rich, *body))


def queued(found: Sequence[Queued]) -> View:
    """Queued resources and their TPU VMs."""
    if not found:
        none = "There are no queued resources in this zone."
        return View([], none, html.page(html.line(html.muted(none))))
    headers = ("", "name", "state", "tier", "type", "nodes", "")
    rows = [_queued_row(each) for each in found]
    rich = html.table(headers[1:], [[escape(cell) for cell in row[1:]] for row in rows])
    return View(list(found), text.table(headers, rows), html.page(rich, html.as_of(time.time())))


def queued_line(now: Queued) -> str:
    """One line on a queued resource, for waiting."""
    return f"{now.name}: {now.state}, {_nodes(now)}"


def with_last_line(status: HostStatus, lines: Sequence[str]) -> HostStatus:
    """Return `status` with the last of `lines` that is not empty."""
    last = next((line for line in reversed(lines) if line.strip()), status.last_line)
    return replace(status, last_line=last)


def _row(each: HostStatus, now: float) -> tuple[str, ...]:
    state = str(each.phase)
    if each.phase is Phase.SENDING and each.total:
        state += f", {size(each.sent)} of {size(each.total)}"
    elapsed = text.duration((each.ended or now) - each.began) if each.began else ""
    code = "" if each.exit_code is None else str(each.exit_code)
    last = _short(each.last_line, _LINE_LENGTH)
    return (_MARKS[_tone(each)], each.target.label, each.target.name, state, elapsed, code, last)


def _summary(statuses: Sequence[HostStatus]) -> str:
    counts: dict[str, int] = {}
    for each in statuses:
        counts[str(each.phase)] = counts.get(str(each.phase), 0) + 1
    return ", ".join(f"{number} {phase}" for phase, number in counts.items())


def _tone(each: HostStatus) -> Tone:
    if each.phase is Phase.EXITED:
        return Tone.FAIL if each.code else Tone.OK
    if each.phase in {Phase.FAILED, Phase.LOST}:
        return Tone.FAIL
    return Tone.NONE if each.phase in {Phase.STOPPED, Phase.WAITING} else Tone.WAIT


def _unfolding(record: Record, each: HostStatus) -> str:
    lines = tail(record.log(each.target), _LOG_LINES)
    body = escape("\n".join(lines)) or "no output"
    return (
        f"<details><summary>{escape(each.target.label)} {escape(each.target.name)}</summary>"
        f'<pre style="max-height: 20rem; overflow: auto">{body}</pre></details>'
    )


def _short(line: str, length: int) -> str:
    clean = "".join(character for character in line if character.isprintable())
    return clean if len(clean) <= length else f"{clean[: length - 1]}…"


def _queued_row(each: Queued) -> tuple[str, ...]:
    mark = Mark.OK if each.usable else Mark.FAIL if each.state in {"FAILED", "SUSPENDED"} else Mark.WAIT
    kind = each.nodes[0].accelerator if each.nodes else ""
    return (mark, each.name, each.state, each.tier, kind, _nodes(each), each.reason)


def _nodes(each: Queued) -> str:
    counts: dict[str, int] = {}
    for node in each.nodes:
        state = "not created yet" if node.state == "-" else node.state
        counts[state] = counts.get(state, 0) + 1
    listed = ", ".join(f"{number} {state}" for state, number in counts.items())
    return f"{text.count(len(each.nodes), 'node')}: {listed}" if listed else "no nodes"
