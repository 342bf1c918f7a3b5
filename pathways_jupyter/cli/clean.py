"""``pathways-jupyter clean``: remove the leftovers of sessions that ended without cleaning up."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

from pathways_jupyter import blocking, entry
from pathways_jupyter.cli.options import epilog, given, show, takes
from pathways_jupyter.commands.session import CLEAN
from pathways_jupyter.errors import ConfigError, LocalClusterError, PathwaysError
from pathways_jupyter.render import text
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View

_PATIENCE = 10.0


@dataclass(frozen=True)
class Cleaned:
    """An item that was removed, or (in a dry run) would be.

    Attributes:
      what: ``session`` for a session of this machine with its objects in the cluster, ``files`` for files of a session
        without a record, ``proxy`` for a Job found in the cluster.
      error: Why it could not be removed; empty when it could.
    """

    what: str
    name: str
    reason: str
    error: str = ""


@click.command(epilog=epilog(CLEAN))
@takes(CLEAN)
def clean(json: bool, dry_run: bool, **values: Any) -> None:
    """Remove proxies whose owner is gone, and files of sessions that ended.

    A proxy counts as abandoned once its Lease has expired; live sessions are never touched. Exit code 1 if something
    could not be removed.
    """
    done, where = _sessions(dry_run), given(values)
    failed: PathwaysError | None = None
    skipped = ""
    try:
        done += _proxies(dry_run, where)
    except ConfigError as error:
        # No cluster named and none configured: clean this machine only.
        failed, skipped = (error, "") if where else (None, str(error))
    except LocalClusterError as error:
        # The embedded cluster has ended, and everything in it.
        skipped = str(error)
    except PathwaysError as error:
        failed = error
    if done or failed is None:
        show(View(done, _text(done, dry_run, skipped), ""), as_json=json)
    if failed is not None:
        raise failed
    sys.exit(int(any(each.error for each in done)))


def _sessions(dry_run: bool) -> list[Cleaned]:
    """Remove dead sessions of this machine with their objects in the cluster, and stray files."""
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
        done.append(Cleaned("files", left.session, "they belong to no running session", error))
    return done


def _proxies(dry_run: bool, values: dict[str, Any]) -> list[Cleaned]:
    """Remove abandoned proxies of all users in the cluster, as far as the credentials allow."""
    from pathways_jupyter.service import leases

    swept = entry.ask(
        entry.look(values),
        lambda client, namespace: leases.sweep(client, namespace, dry_run=dry_run, reclaim=leases.EVERY),
    )
    return [Cleaned("proxy", each.job, each.reason, each.error) for each in swept]


def _text(done: list[Cleaned], dry_run: bool, skipped: str) -> str:
    if skipped:
        skipped = f"\n{Mark.WARN} No cluster was checked. {skipped}"
    if not done:
        return f"{Mark.OK} Nothing to clean{' on this machine' if skipped else ''}.{skipped}"
    verb = "would be removed" if dry_run else "removed"
    rows = [
        (Mark.FAIL if each.error else Mark.OK, each.what, each.name, each.error or f"{verb}: {each.reason}")
        for each in done
    ]
    return text.table(("", "", "", ""), rows) + skipped
