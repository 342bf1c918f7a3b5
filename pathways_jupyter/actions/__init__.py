"""Implementation of each command, once for magics, command line, server and Python calls.

Each command that :mod:`pathways_jupyter.commands` declares has one action here; the shells parse, call it, and show its
result. What acts on a notebook itself, such as ``connect``, belongs to the magics.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.sentences import with_options

if TYPE_CHECKING:
    from pathways_jupyter.actions.shell import Action, Values

_AREAS = {
    "clean": "sessions",
    "demo": "accept",
    "manifests": "service",
    "network-policy": "service",
    "operator": "images",
    "services": "service",
    "sidecar": "images",
    "slices": "service",
}
"""Modules of commands, by their first word, where it is not the module's name."""


def action_of(command: str) -> Action:
    """Return what `command` does; imports its area only, because some take long."""
    word = command.partition(" ")[0]
    action: Action = importlib.import_module(f"{__name__}.{_AREAS.get(word, word)}").ACTIONS[command]
    return action


@contextlib.contextmanager
def of_its_cluster(values: Values) -> Iterator[None]:
    """Keep the cluster that a command's values name in the hints of its errors."""
    try:
        yield
    except PathwaysError as error:
        from pathways_jupyter.actions import cluster

        error.hint = with_options(error.hint, cluster.named_options(values))
        raise
