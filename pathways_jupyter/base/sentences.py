"""Hints in the words of the interface that shows them.

A hint has placeholders for what the user types: ``advice("{reconnect} gets a new proxy.")``. The code that raises an
error does not know where it is shown, and may run in another process; the interface fills them in (:func:`worded`). In
a script an option becomes the keyword of the same name, and a magic the equivalent method; in a terminal a magic
becomes the equivalent command; in the sidebar, which stands beside a notebook, an option becomes the field of the
connect dialog, and a magic the button of that name if there is one. A placeholder's arguments follow a colon:
``{tpu:tpuv6e:2x2=2}``, ``{job_show:{name}}``.

:func:`advice` makes an :class:`Advice`, which is a string, worded for a notebook: everything that prints, logs or
compares texts takes it as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any


class Face(Enum):
    """The interface that shows a hint."""

    NOTEBOOK = "notebook"
    CALL = "call"
    """A notebook whose cell has called Python: options are keywords, and commands are magics."""
    SCRIPT = "script"
    TERMINAL = "terminal"
    SIDEBAR = "sidebar"


_GROUPS = ("colocated_", "elastic_", "job_", "lab_", "profile_", "service_")
_OF_TERMINALS = ("clean", "lab ")
"""Commands that only a terminal has."""
_COMMANDS = frozenset(
    {
        *(
            "clean",
            "connect",
            "disconnect",
            "doctor",
            "env",
            "events",
            "explain",
            "load",
            "logs",
            "reconnect",
            "resume",
            "saved",
        ),
        *("sessions", "slices", "status", "suspend"),
    }
)
"""Commands outside of the groups; all other placeholders are options of ``connect``."""
_OF_A_CLUSTER = frozenset({"clean", "doctor", "logs", "saved", "slices"})
_GROUPS_OF_A_CLUSTER = ("job_", "lab_", "service_")
"""Commands whose options select a cluster; of the first group all but ``job new``."""
_IN_SCRIPT: Mapping[str, str] = {
    "disconnect": "session.disconnect()",
    "reconnect": "session.reconnect()",
    "resume": "session.resume()",
    "resume --yes": "session.resume(yes=True)",
    "saved": "session.saves.list()",
    "load": "session.load(NAME)",
    "suspend --yes": "session.suspend(yes=True)",
    "status": "session.status()",
    "events": "session.events()",
    "env": "session.environment()",
    "profile stop": "session.trace.stop()",
    "colocated hosts": "colocated.hosts()",
    "colocated reset": "colocated.reset()",
    "colocated restart": "colocated.restart()",
    "connect --help": "help(pathways_jupyter.connect)",
    "no_relay": "relay=False",
}
_IN_TERMINAL: Mapping[str, str] = {
    "disconnect": "pathways-jupyter sessions disconnect",
    "reconnect": "%pathways reconnect (in its notebook)",
    "resume": "%pathways resume (in its notebook)",
    "resume --yes": "%pathways resume --yes (in its notebook)",
    "suspend --yes": "%pathways suspend --yes (in its notebook)",
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
_BUTTONS: Mapping[str, str] = {
    each: f"“{each.capitalize()}”" for each in ("disconnect", "reconnect", "resume", "suspend")
}
"""Replacements for magics that are buttons of the sidebar."""
_SWITCHES = frozenset(["local", "relay", "share", "tunnel", "unpickle", "wait", "yes"])
"""Options that need no value: in a script they are set to True."""


def word(name: str, arguments: str, face: Face) -> str:
    """Return what to type for the placeholder `name` with these arguments."""
    if name in _COMMANDS or name.startswith(_GROUPS):
        return _command(f"{name.replace('_', ' ')} {arguments.strip()}".rstrip(), face)
    flag = f"--{name.replace('_', '-')}"
    if face in {Face.SCRIPT, Face.CALL}:
        if not arguments:
            return _IN_SCRIPT.get(name) or f"{name}={'True' if name in _SWITCHES else ''}"
        return f"{name}={arguments}" if arguments.isdecimal() else f'{name}="{arguments}"'
    return f"{_IN_SIDEBAR.get(name, flag) if face is Face.SIDEBAR else flag} {arguments}".rstrip()


def _command(line: str, face: Face) -> str:
    # %colocated is a magic of its own, and no command of a terminal.
    is_colocated = line.startswith("colocated ")
    name, _, options = line.partition(" --")
    if face is Face.CALL:
        # The magics are loaded, but a call that failed has returned no session.
        face = Face.SCRIPT if name == "connect" else Face.NOTEBOOK
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
    if face is Face.SIDEBAR and line in _BUTTONS:
        return _BUTTONS[line]
    if (face in {Face.NOTEBOOK, Face.SIDEBAR} and not line.startswith(_OF_TERMINALS)) or is_colocated:
        return f"%{line}" if is_colocated else f"%pathways {line}"
    return f"pathways-jupyter {line}"


class Advice(str):
    """A hint, worded for a notebook, with its template and parameters; a parameter may be a hint too."""

    template: str
    values: Mapping[str, Any]

    def __new__(cls, in_notebook: str, template: str, values: Mapping[str, Any]) -> Advice:
        """Create the hint; :func:`advice` words it for a notebook."""
        self = super().__new__(cls, in_notebook)
        self.template, self.values = template, values
        return self

    def __getnewargs__(self) -> tuple[str, str, Mapping[str, Any]]:  # type: ignore[override]
        """Copy and pickle it with its template."""
        return str(self), self.template, self.values


_PLACEHOLDER = re.compile(r"\{(\w+)(?::((?:[^{}]|\{\w+\})*))?\}")
"""A name, and its arguments after a colon, which may have placeholders themselves."""


def advice(template: str, /, **values: str | int) -> Advice:
    """Return a hint for people with these parameters.

    A placeholder without a value is a command or an option.
    """
    return Advice(_composed(template, values, Face.NOTEBOOK), template, values)


def filled(hint: str, values: Mapping[str, str | int]) -> str:
    """Return `hint` with these values of its parameters; as it is if it is no :class:`Advice`."""
    return advice(hint.template, **{each: values[each] for each in hint.values}) if isinstance(hint, Advice) else hint


def with_options(hint: str, options: str) -> str:
    """Return `hint` with `options`, which select a cluster, at the commands in it that take them.

    What was asked of one cluster has its next step there.
    """
    if not options or not isinstance(hint, Advice) or "options" in hint.values:
        return hint

    def fill(match: re.Match[str]) -> str:
        name, arguments = match[1], match[2]
        is_one = name in _OF_A_CLUSTER or name.startswith(_GROUPS_OF_A_CLUSTER)
        if not is_one or name == "job_new" or name in hint.values:
            return match[0]
        return f"{{{name}:{f'{arguments} ' if arguments else ''}{{options}}}}"

    values = {name: with_options(each, options) for name, each in hint.values.items()}
    return advice(_PLACEHOLDER.sub(fill, hint.template), **{**values, "options": options})


def option(name: str, value: str = "") -> Advice:
    """Return the option of ``connect`` for the setting `name`, as a parameter of :func:`advice`."""
    return advice(f"{{{name}:{{value}}}}", value=value)


def worded(text: str, face: Face) -> str:
    """Return `text` with the commands and options of `face`; as it is if it is no :class:`Advice`."""
    return _composed(text.template, text.values, face) if isinstance(text, Advice) else text


def _composed(template: str, values: Mapping[str, Any], face: Face) -> str:
    # Not str.format: a template may come from another process, and values are never read as templates.
    def fill(match: re.Match[str]) -> str:
        name, arguments = match[1], match[2] or ""
        if name not in values:
            return word(name, _composed(arguments, values, face), face)
        return str(worded(values[name], face))

    return _PLACEHOLDER.sub(fill, template)


def to_json(hint: str) -> dict[str, Any]:
    """Return `hint` as JSON values, with which another process can word it for its face."""
    if not isinstance(hint, Advice):
        return {"hint": hint}
    values = {key: to_json(each) if isinstance(each, str) else each for key, each in hint.values.items()}
    return {"hint": str(hint), "template": hint.template, "values": values}


def from_json(value: Mapping[str, Any]) -> str:
    """Return the hint of which :func:`to_json` made `value`, which may have other fields too; empty if it has none."""
    hint, template = str(value.get("hint", "")), value.get("template")
    if not isinstance(template, str):
        return hint
    values = dict(value.get("values") or {})
    return Advice(
        hint, template, {name: from_json(each) if isinstance(each, Mapping) else each for name, each in values.items()}
    )


def topic_of(name: str) -> str:
    """Return the topic that a heading or a name means: ``proxy image`` is ``proxy-image``."""
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")
