"""``pathways-jupyter sessions``: what runs on this machine, and ending it from here."""

from __future__ import annotations

import dataclasses

import click

from pathways_jupyter import entry
from pathways_jupyter.cli.options import show, show_json

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
@click.argument("session", required=False, default="")
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
        show_json(dataclasses.asdict(record))
    else:
        click.echo(f"Session {record.id} is over; its proxy {record.job or ''} is gone.".replace("  ", " "))
