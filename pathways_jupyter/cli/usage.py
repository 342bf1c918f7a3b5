"""``pathways-jupyter usage``: who has held how many chip-hours."""

from __future__ import annotations

from typing import Any

import click

from pathways_jupyter import entry
from pathways_jupyter.cli.options import epilog, given, show, takes
from pathways_jupyter.commands.service import USAGE, USAGE_SPAN


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
