"""Name commands and options in the words of the interface that shows a hint.

A hint is written once, with placeholders for what the user types: ``advice("{reconnect} gets a new proxy.")``. The code
that raises an error does not know where it is shown, and may run in another process; the interface fills them in. In a
script an option becomes the keyword of the same name, and a magic the equivalent method; in a terminal a magic becomes
the equivalent command; in the sidebar, which stands beside a notebook, an option becomes the field of the connect
dialog. A placeholder's arguments follow a colon: ``{tpu:tpuv6e:2x2=2}``, ``{logs:proxy}``, ``{job_show:{name}}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Face(Enum):
    """The interface that shows a hint."""

    NOTEBOOK = "notebook"
    SCRIPT = "script"
    TERMINAL = "terminal"
    SIDEBAR = "sidebar"


_GROUPS = ("colocated_", "elastic_", "job_", "multihost_", "service_")
_COMMANDS = frozenset(
    ["connect", "disconnect", "doctor", "env", "events", "logs", "reconnect", "sessions", "slices", "status"]
)
"""Commands outside of the groups; all other placeholders are options of ``connect``."""
_IN_SCRIPT: Mapping[str, str] = {
    "disconnect": "session.disconnect()",
    "reconnect": "session.reconnect()",
    "status": "session.status()",
    "events": "session.events()",
    "env": "session.environment()",
    "colocated hosts": "colocated.hosts()",
    "colocated reset": "colocated.reset()",
    "colocated restart": "colocated.restart()",
    "connect --help": "help(pathways_jupyter.connect)",
    "no_relay": "relay=False",
}
_IN_TERMINAL: Mapping[str, str] = {
    "disconnect": "pathways-jupyter sessions disconnect",
    "reconnect": "%pathways reconnect (in its notebook)",
    "status": "pathways-jupyter sessions",
    "events": "%pathways events (in its notebook)",
    "env": "%pathways env (in its notebook)",
}
"""Replacements for magics; one that is not listed becomes the terminal command of the same name."""
_IN_SIDEBAR: Mapping[str, str] = {
    "context": "“Cluster”",
    "namespace": "“Namespace”",
    "service": "“Service”",
    "tpu": "“Slice type”",
    "profile": "“Profile”",
    "wait": "“Wait for slices that are taken”",
    "local": "the embedded cluster",
    # The dialog has no field for these: the Jupyter server's environment and profiles set them.
    "kubeconfig": "KUBECONFIG",
    "cluster": "cluster",
    "project": "project",
    "region": "region",
}
"""Replacements for options: labels of the connect dialog."""
_SWITCHES = frozenset(["local", "relay", "share", "tunnel", "unpickle", "wait"])
"""Options that need no value: in a script they are set to True."""


def word(name: str, arguments: str, face: Face) -> str:
    """Return what to type for the placeholder `name` with these arguments."""
    if name in _COMMANDS or name.startswith(_GROUPS):
        return _command(f"{name.replace('_', ' ')} {arguments}".rstrip(), face)
    flag = f"--{name.replace('_', '-')}"
    if face is Face.SCRIPT:
        if not arguments:
            return _IN_SCRIPT.get(name) or f"{name}={'True' if name in _SWITCHES else ''}"
        return f"{name}={arguments}" if arguments.isdecimal() else f'{name}="{arguments}"'
    return f"{_IN_SIDEBAR.get(name, flag) if face is Face.SIDEBAR else flag} {arguments}".rstrip()


def _command(line: str, face: Face) -> str:
    # %colocated is a magic of its own, and no command of a terminal.
    is_colocated = line.startswith("colocated ")
    name, _, options = line.partition(" --")
    if face is Face.SCRIPT and line in _IN_SCRIPT:
        return _IN_SCRIPT[line]
    if face is Face.SCRIPT and name == "connect":
        given = [each.partition(" ") for each in options.split(" --") if each]
        keywords = ", ".join(word(flag.replace("-", "_"), value, face) for flag, _, value in given)
        return f"pathways_jupyter.connect({keywords})"
    if face is Face.TERMINAL and name == "connect":
        return f"%pathways {line} (in a notebook)"
    if face is Face.TERMINAL and line in _IN_TERMINAL:
        return _IN_TERMINAL[line]
    if face in {Face.NOTEBOOK, Face.SIDEBAR} or is_colocated:
        return f"%{line}" if is_colocated else f"%pathways {line}"
    return f"pathways-jupyter {line}"
