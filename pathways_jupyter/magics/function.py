"""``pathways_jupyter.connect(...)``: connect from Python code, with progress in notebooks and terminals."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pathways_jupyter.actions import cluster
from pathways_jupyter.base import interrupts, setting_sources
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.magics.screen import Screen
from pathways_jupyter.magics.waiting import Waiting

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session

_UNUSED: Mapping[str, str] = {
    "proxy_job_name": "the proxy's Job is named after its session",
    "collect_service_metrics": "nothing is written to Cloud Monitoring; the operator exports chips and waits by user "
    "to Prometheus",
}
"""Keywords of pathwaysutils that change nothing here, with what happens instead."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/.*)?")
_GKE = ("cluster", "project", "region")


def connect(arguments: Mapping[str, Any], *, progress: bool | None) -> Session:
    """Connect with `arguments`, by their names; see :func:`pathways_jupyter.connect`.

    In a notebook this loads the magics, so that notices about the session appear there as well.

    Args:
      progress: Whether to show progress; None shows it in notebooks and terminals only.
    """
    from pathways_jupyter.session.kernel import attempt, process, session

    # What shows progress and the session's card prints.
    with interrupts.defer_sigint():
        shell = process.shell()
        notebook = None
        if shell is not None:
            from pathways_jupyter.magics import extension

            notebook = extension.load(shell).magics.notebook
        if progress is None:
            progress = notebook is not None or sys.stderr.isatty()
        try:
            checked = cluster.resolve(_without_unused(arguments))
            if not progress:
                with cluster.Located(checked) as located:
                    made = session.connect(located, revive=cluster.revive)
            else:
                with Waiting(notebook.screen if notebook is not None else Screen(None)) as waiting:
                    made = waiting.connect(checked).session
                    waiting.done()
        except PathwaysError as error:
            error.face = Face.CALL
            raise
        except KeyboardInterrupt as error:
            if shell is None:
                attempt.until_imported()
            # Without the stack of what was waited for, which says nothing to the user.
            raise KeyboardInterrupt(attempt.give_up(error)) from None
        if notebook is not None:
            notebook.watch(made)
        return made


def _without_unused(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return `arguments` without those of pathwaysutils that have no effect here; warn about each."""
    left = dict(arguments)
    ignored = [f"{name} is not used: {instead}." for name, instead in _UNUSED.items() if left.pop(name)]
    # A script for pathwaysutils may give the bucket's name alone.
    if isinstance(left["gcs_bucket"], str) and _BUCKET.fullmatch(left["gcs_bucket"]):
        left["gcs_bucket"] = f"gs://{left['gcs_bucket']}"
    # Such a script names its cluster, and must run unchanged where the environment chooses the embedded one.
    if left["local"] is None and any(left[name] for name in _GKE) and setting_sources.resolve(left).local:
        left.update(dict.fromkeys(_GKE))
        ignored.append(
            "The embedded cluster is used, as PATHWAYS_JUPYTER_LOCAL or the profile says: "
            "cluster, project and region are ignored."
        )
    for line in ignored:
        # At the line that calls pathways_jupyter.connect().
        warnings.warn(line, stacklevel=4)
    return left
