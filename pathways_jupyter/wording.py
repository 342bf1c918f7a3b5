"""Adapt hints to the interface that shows them: a notebook, a script, a terminal or the sidebar.

Hints are written once, in terms of the magics (``--tpu tpuv6e:2x2=2``, ``%pathways reconnect``), because the code that
raises an error does not know where it is shown, and may run in another process. An interface passes it through
:func:`worded`: in a script an option becomes the keyword of the same name, and a magic the equivalent method; in a
terminal a magic becomes the equivalent command; in the sidebar, which stands beside a notebook, magics stay and an
option becomes the field of the connect dialog. Command lines of other programs are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from pathways_jupyter.commands.connect import CONNECT
from pathways_jupyter.commands.declaration import Kind, Option


class Face(Enum):
    """The interface that shows a hint."""

    NOTEBOOK = "notebook"
    SCRIPT = "script"
    TERMINAL = "terminal"
    SIDEBAR = "sidebar"


def count(number: int, singular: str, plural: str = "") -> str:
    """Return `number` with its noun: ``1 slice``, ``2 slices``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first of `names`, and how many more there are: ``a, b and 38 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(number: float) -> str:
    """Return `number` of bytes in the unit that suits it: ``1 byte``, ``812 bytes``, ``3.1 kB``, ``47.7 MB``."""
    if number < 1000:
        return count(round(number), "byte")
    for unit in ("kB", "MB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} GB"


_SHELL = "pathways-jupyter {line}"
_IN_SCRIPT: Mapping[str, str] = {
    "connect": "pathways_jupyter.connect({arguments})",
    "disconnect": "session.disconnect()",
    "reconnect": "session.reconnect()",
    "status": "session.status()",
    "events": "session.events()",
    "env": "session.environment()",
    "colocated hosts": "colocated.hosts()",
    "colocated reset": "colocated.reset()",
    "colocated restart": "colocated.restart()",
}
_IN_TERMINAL: Mapping[str, str] = {
    "connect": "%pathways {line} (in a notebook)",
    "disconnect": "pathways-jupyter sessions disconnect",
    "reconnect": "%pathways reconnect (in its notebook)",
    "status": "pathways-jupyter sessions",
    "events": "%pathways events (in its notebook)",
    "env": "%pathways env (in its notebook)",
}
"""Replacements for magics; one that is not listed becomes the terminal command of the same name."""
_IN_SIDEBAR: Mapping[str, str] = {
    "--context": "“Cluster”",
    "--namespace": "“Namespace”",
    "--service": "“Service”",
    "--tpu": "“Slice type”",
    "--profile": "“Profile”",
    "--wait": "“Wait for slices that are taken”",
    "--local": "the embedded cluster",
    # The dialog has no field for these: the Jupyter server's environment and profiles set them.
    "--kubeconfig": "KUBECONFIG",
    "--cluster": "cluster",
    "--project": "project",
    "--region": "region",
}
"""Replacements for options: labels of the connect dialog."""

_VALUE = r"(?:[ =](?P<value>(?!-)[^\s,;]*[^\s,;.)]))?"
_PIECE = re.compile(
    # Command lines of other programs, including their arguments.
    r"(?P<shell>\b(?:kubectl|gcloud|docker|podman|pip|pathways-jupyter) [^;,]*)"
    r"|%pathways (?P<magic>[a-z]+)(?P<rest>(?: (?:rm|proxy|supervisor|worker(?: (?:N|\d[-\d]*))?)\b)?(?: --[a-z-]+"
    r"(?: [a-z0-9]+:[0-9x]+=\d+)?)*)"
    r"|%(?P<colocated>colocated (?:hosts|reset|restart))\b"
    rf"|(?P<flag>--[a-z]+(?:-[a-z]+)*){_VALUE}"
)
_OPTIONS: Mapping[str, Option] = {flag: option for option in CONNECT.options for flag in (option.flag, *option.aliases)}


def worded(hint: str, face: Face) -> str:
    """Return `hint` in the terms of `face`."""
    return hint if face is Face.NOTEBOOK else _PIECE.sub(lambda found: _piece(found, face), hint)


def _piece(found: re.Match[str], face: Face) -> str:
    if found["magic"]:
        return _magic(found["magic"], found["rest"], face)
    if found["colocated"] and face is Face.SCRIPT:
        return _IN_SCRIPT[found["colocated"]]
    if found["flag"] and face is Face.SCRIPT:
        return _keyword(found["flag"], found["value"] or "", found[0])
    if found["flag"] and face is Face.SIDEBAR:
        return found[0].replace(found["flag"], _IN_SIDEBAR.get(found["flag"], found["flag"]), 1)
    return found[0]


def _magic(name: str, rest: str, face: Face) -> str:
    line = f"{name}{rest}"
    if face is Face.SIDEBAR:
        return f"%pathways {line}"
    if face is Face.TERMINAL:
        return _IN_TERMINAL.get(name, _SHELL).format(line=line)
    if name == "connect" and "--help" in rest:
        return "help(pathways_jupyter.connect)"
    arguments = _PIECE.sub(lambda found: f"{_piece(found, face)},", rest).strip().rstrip(",")
    return _IN_SCRIPT.get(name, _SHELL).format(line=line, arguments=arguments)


def _keyword(flag: str, value: str, text: str) -> str:
    """Return an option of `connect` as a keyword; the next word is its value only if it looks like one."""
    option = _OPTIONS.get(flag)
    if option is None:
        return text
    given = value if option.kind is not Kind.FLAG and _is_value(value) else ""
    after = text[len(flag) :] if not given else text[len(flag) + 1 + len(given) :]
    if option.kind is Kind.FLAG or (option.kind is Kind.SECONDS and not given):
        return f"{option.name}=True{after}"
    if option.kind in {Kind.NUMBER, Kind.SECONDS} or not given:
        return f"{option.name}={given}{after}"
    return f'{option.name}="{given}"{after}'


def _is_value(word: str) -> bool:
    return word.isupper() or any(character.isdigit() or character in ":/" for character in word)
