"""``%pathways elastic``: show the training run of this notebook, and inject faults into it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathways_jupyter import entry
from pathways_jupyter.elastic import faults
from pathways_jupyter.elastic import record as records
from pathways_jupyter.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.magics.connection import Connection
from pathways_jupyter.render import elastic as picture
from pathways_jupyter.render.view import View

Values = Mapping[str, Any]


def run(connection: Connection, values: Values) -> Any:
    """Show the run; with an action, do it and say what was done.

    Raises:
      ConfigError: The arguments make no sense.
      PathwaysError: The cluster could not be reached, or refused.
    """
    action = values.get("action")
    if action is None:
        return _panel(connection)
    if action == "export":
        return _export(str(values.get("what") or "elastic.json"))
    if action == "heal":
        return _heal(connection, entry.whole_number("the slice", values.get("what") or "(nothing)"))
    return _inject(connection, values)


def _panel(connection: Connection) -> Any:
    if connection.screen.in_place:
        from pathways_jupyter.widgets.elastic import ElasticPanel

        return ElasticPanel(connection.shell)
    latest = records.latest()
    return picture.view(latest) if latest is not None else picture.none()


def _inject(connection: Connection, values: Values) -> View:
    session = connection.need()
    if values.get("what") != "slice-down":
        raise ConfigError(f"There is no fault {values.get('what')!r}.", hint="For example: inject slice-down 1.")
    number = entry.whole_number("the slice", values.get("slice") or "(nothing)")
    seconds = entry.whole_number("--for", values.get("seconds", 0))
    delay = entry.whole_number("--after", values.get("after", 0))

    def inject() -> faults.Fault:
        return faults.slice_down(session, number, seconds=seconds, yes=bool(values.get("yes")))

    def later() -> None:
        try:
            connection.notify([str(inject())])
        except PathwaysError as error:
            connection.notify([str(error), error.hint])

    if not delay:
        return picture.said(str(inject()))
    # A daemon, so that a kernel that ends does not wait for it.
    timer = threading.Timer(delay, later)
    timer.daemon = True
    timer.start()
    return picture.said(f"Slice {number} will be taken down in {delay} s.")


def _heal(connection: Connection, number: int) -> View:
    nodes = faults.heal(connection.need(), number)
    if not nodes:
        return picture.said(f"No node is kept from pods because of slice {number}.")
    return picture.said(f"Slice {number} may come back: {', '.join(nodes)} take pods again.")


def _export(file: str) -> View:
    latest = records.latest()
    if latest is None:
        raise SessionError("No elastic training has run in this notebook yet.", hint="See help(elastic.train_loop).")
    path = Path(file).expanduser()
    try:
        path.write_text(latest.to_trace() if file.endswith(".trace.json") else latest.to_json(), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", hint="Choose another file.") from error
    return picture.said(f"{path} was written.")
