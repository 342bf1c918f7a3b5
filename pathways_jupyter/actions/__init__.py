"""Implementation of each command, once for magics, command line, server and Python calls.

Each command that :mod:`pathways_jupyter.commands` declares has one action here; the shells parse, call it, and show its
result. What acts on a notebook itself, such as ``connect``, belongs to the magics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathways_jupyter.actions.shell import Action


def action_of(command: str) -> Action:
    """Return what `command` does; imports its area only, because some take long."""
    match command.partition(" ")[0]:
        case "job":
            from pathways_jupyter.actions.job import ACTIONS
        case "accept" | "demo":
            from pathways_jupyter.actions.accept import ACTIONS
        case "logs":
            from pathways_jupyter.actions.logs import ACTIONS
        case "doctor":
            from pathways_jupyter.actions.doctor import ACTIONS
        case "explain":
            from pathways_jupyter.actions.explain import ACTIONS
        case "elastic":
            from pathways_jupyter.actions.elastic import ACTIONS
        case "kernel":
            from pathways_jupyter.actions.kernel import ACTIONS
        case "lab":
            from pathways_jupyter.actions.lab import ACTIONS
        case "local":
            from pathways_jupyter.actions.local import ACTIONS
        case "multihost":
            from pathways_jupyter.actions.multihost import ACTIONS
        case "profile":
            from pathways_jupyter.actions.profile import ACTIONS
        case "saved":
            from pathways_jupyter.actions.saved import ACTIONS
        case "sessions" | "clean":
            from pathways_jupyter.actions.sessions import ACTIONS
        case "sidecar" | "operator":
            from pathways_jupyter.actions.images import ACTIONS
        case _:
            from pathways_jupyter.actions.service import ACTIONS
    return ACTIONS[command]
