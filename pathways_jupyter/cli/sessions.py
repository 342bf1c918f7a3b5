"""``pathways-jupyter sessions``: list and end the sessions of this machine; and ``clean``, which removes leftovers."""

from __future__ import annotations

import dataclasses
import sys
import time
from dataclasses import dataclass
from typing import Any

import click

from pathways_jupyter import blocking, entry
from pathways_jupyter.cli.options import completing, epilog, examples, given, show, show_json, takes
from pathways_jupyter.commands.declaration import Source
from pathways_jupyter.commands.session import CLEAN
from pathways_jupyter.errors import ConfigError, LocalClusterError, PathwaysError
from pathways_jupyter.events import SessionState
from pathways_jupyter.render import text
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View

DISCONNECT_SECONDS = 60.0


@click.group(invoke_without_command=True, epilog=examples("sessions", "sessions disconnect 4f2a"))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def sessions(context: click.Context, as_json: bool) -> None:
    """List the sessions of all notebooks and scripts on this machine."""
    if context.invoked_subcommand is not None:
        return
    from pathways_jupyter.render import sessions as picture
    from pathways_jupyter.session import client, registry

    show(picture.table(blocking.run(client.present(registry.sessions()))), as_json=as_json)


@sessions.command(
    short_help="End a session, and wait until it is removed.",
    epilog="\b\nExamples:\n  pathways-jupyter sessions disconnect 4f2a",
)
@click.argument("session", required=False, default="", shell_complete=completing(Source.SESSIONS))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def disconnect(session: str, as_json: bool) -> None:
    """End SESSION, an id or the beginning of one; the only session if left out.

    Its notebook is notified. When this returns, the proxy, its Lease and the tunnel are removed.
    """
    from pathways_jupyter.session import client
    from pathways_jupyter.session.protocol import Method

    record = entry.find_session(session)
    client.request(record, Method.DISCONNECT, patience=DISCONNECT_SECONDS)
    if as_json:
        # The record was read before the session ended.
        show_json(dataclasses.asdict(dataclasses.replace(record, state=SessionState.CLOSED, state_since=time.time())))
    else:
        click.echo(f"Session {record.id} has ended; its proxy {record.job or ''} is removed.".replace("  ", " "))


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
