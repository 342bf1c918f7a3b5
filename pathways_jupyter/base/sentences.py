"""Sentences that a page can show in another language.

As with gettext, the English sentence is the key, with its parameters in braces: ``say("{slice} is down.", slice=1)``.
:func:`say` makes a :class:`Sentence`, which is a string: everything that prints, logs or compares messages takes it as
it is. Where it is sent to a page, its template and parameters go along, so that the page can compose the same sentence
from its own translation of the template. A page that has none shows the English text.

``jlpm texts`` finds the templates where they are said, so the first argument of :func:`say` is always a literal.

A hint (:func:`advice`) has placeholders for what the user types too: ``advice("{reconnect} gets a new proxy.")``. The
code that raises an error does not know where it is shown, and may run in another process; the interface fills them in.
In a script an option becomes the keyword of the same name, and a magic the equivalent method; in a terminal a magic
becomes the equivalent command; in the sidebar, which stands beside a notebook, an option becomes the field of the
connect dialog. A placeholder's arguments follow a colon: ``{tpu:tpuv6e:2x2=2}``, ``{job_show:{name}}``. Pages show
hints in English only.
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


_GROUPS = ("colocated_", "elastic_", "job_", "multihost_", "service_")
_COMMANDS = frozenset(
    {
        *("connect", "disconnect", "doctor", "env", "events", "explain", "logs", "reconnect", "resume", "saved"),
        *("sessions", "slices", "status", "suspend"),
    }
)
"""Commands outside of the groups; all other placeholders are options of ``connect``."""
_IN_SCRIPT: Mapping[str, str] = {
    "disconnect": "session.disconnect()",
    "reconnect": "session.reconnect()",
    "resume": "session.resume()",
    "resume --yes": "session.resume(yes=True)",
    "saved": "session.saves.list()",
    "suspend --yes": "session.suspend(yes=True)",
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
_SWITCHES = frozenset(["local", "relay", "share", "tunnel", "unpickle", "wait", "yes"])
"""Options that need no value: in a script they are set to True."""


def word(name: str, arguments: str, face: Face) -> str:
    """Return what to type for the placeholder `name` with these arguments."""
    if name in _COMMANDS or name.startswith(_GROUPS):
        return _command(f"{name.replace('_', ' ')} {arguments}".rstrip(), face)
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
    if face in {Face.NOTEBOOK, Face.SIDEBAR} or is_colocated:
        return f"%{line}" if is_colocated else f"%pathways {line}"
    return f"pathways-jupyter {line}"


class Sentence(str):
    """An English sentence with its template and parameters; a parameter may be a sentence too, or a tuple of them."""

    template: str
    values: Mapping[str, Any]

    def __new__(cls, english: str, template: str, values: Mapping[str, Any]) -> Sentence:
        """Create the sentence; :func:`say` composes its English text."""
        self = super().__new__(cls, english)
        self.template, self.values = template, values
        return self

    def __getnewargs__(self) -> tuple[str, str, Mapping[str, Any]]:  # type: ignore[override]
        """Copy and pickle it with its template."""
        return str(self), self.template, self.values


_PLACEHOLDER = re.compile(r"\{(\w+)(?::((?:[^{}]|\{\w+\})*))?\}")
"""A name, and its arguments after a colon, which may have placeholders themselves."""


def say(template: str, /, **values: str | int | tuple[str, ...]) -> Sentence:
    """Return the sentence with these parameters; the parts of a tuple are joined by "; ".

    A placeholder without a value is a command or an option.
    """
    return Sentence(_composed(template, values, Face.NOTEBOOK), template, values)


def advice(template: str, /, **values: str | int | tuple[str, ...]) -> Sentence:
    """Return a hint for people: like :func:`say`, but pages have no translation of it."""
    return say(template, **values)


def option(name: str, value: str = "") -> Sentence:
    """Return the option of ``connect`` for the setting `name`, as a parameter of :func:`advice`."""
    return advice(f"{{{name}:{{value}}}}", value=value)


def worded(text: str, face: Face) -> str:
    """Return `text` with the commands and options of `face`; as it is if it is no sentence."""
    return _composed(text.template, text.values, face) if isinstance(text, Sentence) else text


def _composed(template: str, values: Mapping[str, Any], face: Face) -> str:
    # Not str.format: a template may come from another process, and values are never read as templates.
    def fill(found: re.Match[str]) -> str:
        name, arguments = found[1], found[2] or ""
        if name not in values:
            return word(name, _composed(arguments, values, face), face)
        value = values[name]
        return "; ".join(worded(each, face) for each in value) if isinstance(value, tuple) else str(worded(value, face))

    return _PLACEHOLDER.sub(fill, template)


def to_json(message: str, name: str = "text") -> dict[str, Any]:
    """Return template and parameters of `message` under `name`, as JSON values; empty if it has none."""
    if not isinstance(message, Sentence):
        return {}
    values = {key: _value_json(each) for key, each in message.values.items()}
    return {name: {"sentence": message.template, "values": values}}


def message_json(message: str) -> dict[str, Any]:
    """Return `message`, and what a page needs to translate it, as JSON values."""
    return {"message": str(message), **to_json(message)}


def _value_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(map(message_json, value))
    return message_json(value) if isinstance(value, Sentence) else value


def from_json(message: str, text: Any) -> str:
    """Return `message` with what :func:`to_json` has made of it; as it is if that is none."""
    if not isinstance(text, Mapping) or not isinstance(text.get("sentence"), str):
        return message
    values = {name: _value_from(value) for name, value in dict(text.get("values") or {}).items()}
    return Sentence(message, text["sentence"], values)


def _value_from(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(from_json(str(each["message"]), each.get("text")) for each in value)
    if isinstance(value, Mapping):
        return from_json(str(value["message"]), value.get("text"))
    return value if isinstance(value, str | int) else str(value)


def topic_of(name: str) -> str:
    """Return the topic that a heading or a name means: ``proxy image`` is ``proxy-image``."""
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")
