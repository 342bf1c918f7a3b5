"""``pathways-jupyter sessions``: what runs on this machine, and ending it from here."""

from __future__ import annotations

import dataclasses
import time

import click

from pathways_jupyter import entry
from pathways_jupyter.cli.options import completing, show, show_json
from pathways_jupyter.commands import Source
from pathways_jupyter.events import SessionState

DISCONNECT_SECONDS = 60.0


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def sessions(context: click.Context, as_json: bool) -> None:
    """Sessions on this machine, whichever notebook or script they belong to."""
    if context.invoked_subcommand is not None:
        return
    from pathways_jupyter.render import sessions as picture
    from pathways_jupyter.session import registry

    show(picture.view(registry.sessions()), as_json=as_json)


@sessions.command(
    short_help="End one, and wait until it is gone.",
    epilog="\b\nExamples:\n  pathways-jupyter sessions disconnect 4f2a",
)
@click.argument("session", required=False, default="", shell_complete=completing(Source.SESSIONS))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def disconnect(session: str, as_json: bool) -> None:
    """End SESSION, an id or the beginning of one; the only session when left out.

    Its notebook is told; the proxy, its Lease and the tunnel are gone when this returns.
    """
    from pathways_jupyter.session import client
    from pathways_jupyter.session.protocol import Method

    record = entry.find_session(session)
    client.request(record, Method.DISCONNECT, patience=DISCONNECT_SECONDS)
    if as_json:
        # As it is now; the record is of the moment before.
        show_json(dataclasses.asdict(dataclasses.replace(record, state=SessionState.CLOSED, state_since=time.time())))
    else:
        click.echo(f"Session {record.id} is over; its proxy {record.job or ''} is gone.".replace("  ", " "))
