"""What each command does, once for magics, command line, server and Python calls.

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
            from pathways_jupyter.actions import job

            return job.ACTIONS[command]
        case "logs":
            from pathways_jupyter.actions.logs import logs

            return logs
        case "doctor":
            from pathways_jupyter.actions.doctor import doctor

            return doctor
        case "elastic":
            from pathways_jupyter.actions import elastic

            return elastic.ACTIONS[command]
        case "lab":
            from pathways_jupyter.actions import lab

            return lab.ACTIONS[command]
        case "local":
            from pathways_jupyter.actions import local

            return local.ACTIONS[command]
        case "multihost":
            from pathways_jupyter.actions import multihost

            return multihost.ACTIONS[command]
        case "sessions" | "clean":
            from pathways_jupyter.actions import sessions

            return sessions.ACTIONS[command]
    from pathways_jupyter.actions import service

    return service.ACTIONS[command]
