"""A run on many hosts as a table of its hosts, and what it would send."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape

from pathways_jupyter.base.printable import printable
from pathways_jupyter.base.text import count, size
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.multihost.output import tail
from pathways_jupyter.multihost.pack import Packed
from pathways_jupyter.multihost.remote.sync import DIRECTORY
from pathways_jupyter.multihost.run import Run
from pathways_jupyter.multihost.run_events import HostPhase, HostStatus, worst
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import Part, as_of, head, line, muted, table, toned
from pathways_jupyter.render.view import View, drawn

_LINE_LENGTH = 100
_LOG_LINES = 200


def hosts(run: Run, statuses: Sequence[HostStatus], *, logs: bool = False) -> View:
    """Return the hosts of a run: state, elapsed time, exit code and last line; with `logs` each host's log unfolds."""
    now = time.time()
    code = worst(statuses) if all(each.phase.over for each in statuses) else None
    rows, unfolding = [], []
    for each in statuses:
        state = str(each.phase)
        if each.phase is HostPhase.SENDING and each.total:
            state += f", {size(each.sent)} of {size(each.total)}"
        elapsed = text.duration((each.ended or now) - each.began) if each.began else ""
        exit_code = "" if each.exit_code is None else str(each.exit_code)
        tone, last = _tone(each), _short(each.last_line, _LINE_LENGTH)
        rows.append((toned(tone), each.target.label, each.target.name, toned(tone, state), elapsed, exit_code, last))
        if logs:
            log = printable("\n".join(tail(run.log(each.target), _LOG_LINES)), lines=True)
            unfolding.append(
                f"<details><summary>{escape(each.target.label)} {escape(each.target.name)}</summary>"
                f'<pre style="max-height: 20rem; overflow: auto">{escape(log) or "no output"}</pre></details>'
            )
    return drawn(
        {"run": asdict(run) | {"logs": str(run.logs), "code": code}, "hosts": list(statuses)},
        head(f"Run {run.name}: {_counted(each.phase for each in statuses)}"),
        table(("", "host", "name", "state", "for", "exit code", "last line"), rows),
        *(line(toned(Tone.FAIL, f"{each.message} {each.hint}".strip())) for each in statuses if each.message),
        line(muted(f"Logs: {run.logs}")),
        Part("", "".join(unfolding)),
        as_of(),
    )


def content(packed: Packed) -> View:
    """Return what a run would send, and what of the directory stays on this machine."""
    left = [{"path": path, "reason": reason} for reason, paths in packed.reasons.items() for path in paths]
    sent = [each for each in packed.entries if each.kind != DIRECTORY]
    files = [{"path": each.path, "bytes": each.size} for each in sent]
    return drawn(
        {"directory": str(packed.root), "bytes": packed.size, "files": files, "left_out": left},
        head(f"{packed.root}: {count(len(packed.files), 'file')}, {size(packed.size)}"),
        table(("file", "size"), [(each.path, size(each.size)) for each in sent]),
        *(line(f"Not sent, {reason}: {', '.join(paths)}") for reason, paths in packed.reasons.items()),
    )


def _tone(each: HostStatus) -> Tone:
    if each.phase is HostPhase.EXITED:
        return Tone.FAIL if each.code else Tone.OK
    if each.phase in {HostPhase.FAILED, HostPhase.LOST}:
        return Tone.FAIL
    return Tone.NONE if each.phase in {HostPhase.STOPPED, HostPhase.WAITING} else Tone.WAIT


def _short(line: str, length: int) -> str:
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _counted(states: Iterable[str]) -> str:
    return ", ".join(f"{number} {state}" for state, number in Counter(states).items())
