"""The commands of ``%pathways``."""

from __future__ import annotations

from collections.abc import Mapping

from pathways_jupyter.commands.connect import CONNECT
from pathways_jupyter.commands.declaration import Command, Source, Word
from pathways_jupyter.commands.elastic import ELASTIC, EXPORT, NOTEBOOK_HEAL, NOTEBOOK_INJECT
from pathways_jupyter.commands.job import (
    JOB_APPLY,
    JOB_CONNECT,
    JOB_DELETE,
    JOB_LIST,
    JOB_LOGS,
    JOB_NEW,
    JOB_RESUME,
    JOB_SHOW,
    JOB_SUSPEND,
)
from pathways_jupyter.commands.multihost import MULTIHOST
from pathways_jupyter.commands.service import (
    DOCTOR,
    SERVICE_DELETE,
    SERVICE_DEPLOY,
    SERVICE_SHOW,
    SERVICE_WAIT,
    SERVICES,
    SLICES,
)
from pathways_jupyter.commands.session import DISCONNECT, ENV, EVENTS, LOGS, PANEL, RECONNECT, SESSIONS, STATUS

PROFILES = Command("profiles", "Profiles in pathways.toml, for connect --profile NAME.")
TRACEBACK = Command("traceback", "The full traceback of the last Pathways error.")
HELP = Command("help", "All commands, or one of them.", words=(Word("command", "which", source=Source.COMMANDS),))
MAGIC: Mapping[str, Command] = {
    command.name: command
    for command in (
        CONNECT,
        DISCONNECT,
        RECONNECT,
        STATUS,
        SLICES,
        PANEL,
        LOGS,
        EVENTS,
        SESSIONS,
        ENV,
        SERVICES,
        SERVICE_DEPLOY,
        SERVICE_SHOW,
        SERVICE_WAIT,
        SERVICE_DELETE,
        JOB_NEW,
        JOB_APPLY,
        JOB_LIST,
        JOB_SHOW,
        JOB_LOGS,
        JOB_CONNECT,
        JOB_SUSPEND,
        JOB_RESUME,
        JOB_DELETE,
        *MULTIHOST,
        DOCTOR,
        ELASTIC,
        NOTEBOOK_INJECT,
        NOTEBOOK_HEAL,
        EXPORT,
        PROFILES,
        TRACEBACK,
        HELP,
    )
}
"""The commands of ``%pathways``; a name of two words is a command of a group."""
