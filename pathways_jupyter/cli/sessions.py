"""``pathways-jupyter sessions``: list and end the sessions of this machine."""

from __future__ import annotations

import dataclasses
import time

import click

from pathways_jupyter import entry
from pathways_jupyter.cli.options import completing, show, show_json
from pathways_jupyter.commands.declaration import Source
from pathways_jupyter.events import SessionState

DISCONNECT_SECONDS = 60.0


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def sessions(context: click.Context, as_json: bool) -> None:
    """List the sessions of all notebooks and scripts on this machine."""
    if context.invoked_subcommand is not None:
        return
    from pathways_jupyter.render import session_table as picture
    from pathways_jupyter.session import registry

    show(picture.view(registry.sessions()), as_json=as_json)


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
