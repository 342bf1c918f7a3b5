"""``slices``, ``logs`` and ``doctor`` of a service; and ``usage``: who has held how many chip-hours."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import Any

import click

from pathways_jupyter import entry, log_command
from pathways_jupyter.cli.options import epilog, given, show, show_json, takes
from pathways_jupyter.commands.service import DOCTOR, SLICES, USAGE, USAGE_SPAN
from pathways_jupyter.commands.session import LOGS
from pathways_jupyter.wording import Face, worded


@click.command(epilog=epilog(SLICES))
@takes(SLICES)
def slices(json: bool, **values: Any) -> None:
    """Show the service's slices: ready, starting or down, and who holds them since when."""
    from pathways_jupyter.render import slices as picture
    from pathways_jupyter.service import status

    where = entry.where(given(values))
    found = entry.ask(where, lambda client, namespace: status.fetch(client, namespace, where.service))
    show(picture.view(found), as_json=json)


@click.command(epilog=epilog(LOGS))
@takes(LOGS)
def logs(json: bool, **values: Any) -> None:
    """Print the log of the resource manager, a worker, or a session's proxy or supervisor.

    With --json each line is an object with "pod" and "line".
    """
    options = {name: values.pop(name) for name in ("program", "slice", "session", "follow", "tail")}
    log = log_command.read(
        options,
        session=lambda: entry.find_session(options["session"] or ""),
        cluster=lambda: entry.where(given(values)),
    )
    # Interrupt is the normal way to end --follow, so it is no error.
    with contextlib.suppress(KeyboardInterrupt) if options["follow"] else contextlib.nullcontext():
        for line in log.lines:
            _print(line, pod=log.pod, as_json=json)


def _print(line: str, *, pod: str, as_json: bool) -> None:
    if as_json:
        show_json({"pod": pod, "line": line}, indent=None)
    else:
        click.echo(line)


@click.command(epilog=epilog(DOCTOR))
@takes(DOCTOR)
def doctor(json: bool, lab: bool, platform: bool, faults: bool, **values: Any) -> None:
    """Check cluster, permissions, service, versions and leftovers, with advice for each problem.

    Exit code 1 if a problem must be fixed before a notebook can connect.
    """
    from pathways_jupyter.render import doctor as picture
    from pathways_jupyter.service.checks import Level

    findings = [
        dataclasses.replace(each, hint=worded(each.hint, Face.TERMINAL))
        for each in entry.examine(entry.where(given(values)), lab=lab, platform=platform, faults=faults)
    ]
    show(picture.view(findings), as_json=json)
    sys.exit(int(any(finding.level is Level.FAIL for finding in findings)))


@click.command(epilog=epilog(USAGE))
@takes(USAGE)
def usage(json: bool, since: str | None, all_namespaces: bool, **values: Any) -> None:
    """Show who has held how many chip-hours, as far as the cluster still knows.

    The sources are the proxies' Jobs and Leases, which are deleted with their sessions: it is a view of what is held
    now and since when, no accounting. PathwaysJobs, whose workers are their own, are not counted.
    """
    from pathways_jupyter.render import usage_table as picture
    from pathways_jupyter.service import usage as reading

    seconds = reading.parse_span(since or USAGE_SPAN)
    found = entry.ask(
        entry.where(given(values)),
        lambda client, namespace: reading.fetch(client, "" if all_namespaces else namespace, seconds),
    )
    show(picture.view(found), as_json=json)
