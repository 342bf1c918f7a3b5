"""Sentences that a page can show in another language.

As with gettext, the English sentence is the key, with its parameters in braces: ``say("{slice} is down.", slice=1)``.
:func:`say` makes a :class:`Sentence`, which is a string: everything that prints, logs or compares messages takes it as
it is. Where it is sent to a page, its template and parameters go along, so that the page can compose the same sentence
from its own translation of the template. A page that has none shows the English text.

``jlpm texts`` finds the templates where they are said, so the first argument of :func:`say` is always a literal.
:func:`advice` makes hints that pages show in English only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.base.hints import Face, word


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

    A placeholder without a value is a command or an option of :mod:`~pathways_jupyter.base.hints`.
    """
    return Sentence(_composed(template, values, Face.NOTEBOOK), template, values)


def advice(template: str, /, **values: str | int | tuple[str, ...]) -> Sentence:
    """Return a hint for people: like :func:`say`, but pages have no translation of it."""
    return say(template, **values)


def option(name: str) -> Sentence:
    """Return the option of ``connect`` for the setting `name`, as a parameter of :func:`advice`."""
    return advice(f"{{{name}}}")


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
        return "; ".join(worded(each, face) for each in value) if isinstance(value, tuple) else worded_value(value)

    def worded_value(value: Any) -> str:
        return worded(value, face) if isinstance(value, str) else str(value)

    return _PLACEHOLDER.sub(fill, template)


def to_json(message: str, name: str = "text") -> dict[str, Any]:
    """Return template and parameters of `message` under `name`, as JSON values; empty if it has none."""
    if not isinstance(message, Sentence):
        return {}
    values = {key: _value_json(each) for key, each in message.values.items()}
    return {name: {"sentence": message.template, "values": values}}


def _value_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [{"message": str(each), **to_json(each)} for each in value]
    return {"message": str(value), **to_json(value)} if isinstance(value, Sentence) else value


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
