"""``pathways-jupyter clean``: what sessions left behind that ended without a word."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

from pathways_jupyter import blocking, commands, entry
from pathways_jupyter.cli.options import epilog, given, show, takes
from pathways_jupyter.errors import ConfigError, LocalClusterError, PathwaysError
from pathways_jupyter.render import text
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View

_PATIENCE = 10.0


@dataclass(frozen=True)
class Cleaned:
    """Something that was removed, or (in a dry run) would be.

    Attributes:
      what: ``session`` for a session of this machine with what it made in its cluster, ``files`` for what lies on this
        machine of a session without a record, ``proxy`` for a Job found in the cluster.
      error: Why it could not be removed; empty when it could.
    """

    what: str
    name: str
    reason: str
    error: str = ""


@click.command(epilog=epilog(commands.CLEAN))
@takes(commands.CLEAN)
def clean(json: bool, dry_run: bool, **values: Any) -> None:
    """Remove proxies whose owner is gone, and files of sessions that ended.

    A proxy counts as abandoned when nobody has renewed its Lease; living sessions are never touched. Exit code 1 when
    something could not be removed.
    """
    done, where = _sessions(dry_run), given(values)
    failed: PathwaysError | None = None
    unasked = ""
    try:
        done += _proxies(dry_run, where)
    except ConfigError as error:
        # Whoever names no cluster, and has none set up, means this machine.
        failed, unasked = (error, "") if where else (None, str(error))
    except LocalClusterError as error:
        # What was in an embedded cluster ended with it.
        unasked = str(error)
    except PathwaysError as error:
        failed = error
    if done or failed is None:
        show(View(done, _text(done, dry_run, unasked), ""), as_json=json)
    if failed is not None:
        raise failed
    sys.exit(int(any(each.error for each in done)))


def _sessions(dry_run: bool) -> list[Cleaned]:
    """Sessions of this machine whose supervisor is gone, with what they left in their cluster; and files of others."""
    from pathways_jupyter.session import strays, sweep

    done = []
    for record in sweep.dead():
        error = ""
        if not dry_run:
            try:
                blocking.run(sweep.sweep(record, patience=_PATIENCE))
            except PathwaysError as problem:
                error = str(problem)
        done.append(Cleaned("session", record.id, "its supervisor is gone", error))
    for left in strays.find():
        error = ""
        if not dry_run:
            try:
                strays.remove(left)
            except PathwaysError as problem:
                error = str(problem)
        done.append(Cleaned("files", left.session, "they belong to no session that runs", error))
    return done


def _proxies(dry_run: bool, values: dict[str, Any]) -> list[Cleaned]:
    """Abandoned proxies of anybody's in the cluster, as far as these credentials reach."""
    from pathways_jupyter.service import leases

    swept = entry.ask(entry.look(values), lambda client, namespace: leases.sweep(client, namespace, dry_run=dry_run))
    return [Cleaned("proxy", each.job, each.reason, each.error) for each in swept]


def _text(done: list[Cleaned], dry_run: bool, unasked: str) -> str:
    if unasked:
        unasked = f"\n{Mark.WARN} No cluster was looked at. {unasked}"
    if not done:
        return f"{Mark.OK} Nothing to clean{' on this machine' if unasked else ''}.{unasked}"
    verb = "would go" if dry_run else "removed"
    rows = [
        (Mark.FAIL if each.error else Mark.OK, each.what, each.name, each.error or f"{verb}: {each.reason}")
        for each in done
    ]
    return text.table(("", "", "", ""), rows) + unasked
