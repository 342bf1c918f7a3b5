"""Commands that inspect a service: ``slices``, ``logs``, ``doctor``."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from pathways_jupyter import commands, entry
from pathways_jupyter.cli.options import epilog, given, show, show_json, takes
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.wording import Face, worded

_TAIL = 100


@click.command(epilog=epilog(commands.SLICES))
@takes(commands.SLICES)
def slices(json: bool, **values: Any) -> None:
    """Show the service's slices: ready, starting or down, and who holds them since when."""
    from pathways_jupyter.render import slices as picture
    from pathways_jupyter.service import status

    where = entry.where(given(values))
    found = entry.ask(where, lambda client, namespace: status.fetch(client, namespace, where.service))
    show(picture.view(found), as_json=json)


@click.command(epilog=epilog(commands.LOGS))
@takes(commands.LOGS)
def logs(json: bool, **values: Any) -> None:
    """Print the log of the resource manager, a worker, or a session's proxy or supervisor.

    With --json each line is an object with "pod" and "line".
    """
    from pathways_jupyter.service import logs as reading

    program = values.pop("program") or "proxy"
    which, beginning = values.pop("slice") or "", values.pop("session") or ""
    follow, tail = values.pop("follow"), entry.whole_number("--tail", values.pop("tail") or _TAIL)
    where: ConnectConfig | SessionRecord
    if program in {"proxy", "supervisor"}:
        record = entry.find_session(beginning)
        if program == "supervisor":
            for line in Path(record.log).read_text(encoding="utf-8", errors="replace").splitlines()[-tail:]:
                _print(line, pod="", as_json=json)
            return
        where, service, job = record, record.service, record.job
    else:
        config = entry.where(given(values))
        where, service, job = config, config.service, ""
    found = entry.ask(
        where,
        lambda client, namespace: reading.find(client, namespace, program, which=which, service=service, job=job),
    )
    lines = entry.stream(where, lambda client, namespace: reading.lines(client, found, follow=follow, tail=tail))
    # Interrupt is the normal way to end --follow, so it is no error.
    with contextlib.suppress(KeyboardInterrupt) if follow else contextlib.nullcontext():
        for line in lines:
            _print(line, pod=found.pod, as_json=json)


def _print(line: str, *, pod: str, as_json: bool) -> None:
    if as_json:
        show_json({"pod": pod, "line": line}, indent=None)
    else:
        click.echo(line)


@click.command(epilog=epilog(commands.DOCTOR))
@takes(commands.DOCTOR)
def doctor(json: bool, lab: bool, **values: Any) -> None:
    """Check cluster, permissions, service, versions and leftovers, with advice for each problem.

    Exit code 1 if a problem must be fixed before a notebook can connect.
    """
    from pathways_jupyter.render import doctor as picture
    from pathways_jupyter.service import doctor as checks

    findings = [
        dataclasses.replace(each, hint=worded(each.hint, Face.TERMINAL))
        for each in entry.examine(entry.where(given(values)), lab=lab)
    ]
    show(picture.view(findings), as_json=json)
    sys.exit(int(any(finding.level is checks.Level.FAIL for finding in findings)))
