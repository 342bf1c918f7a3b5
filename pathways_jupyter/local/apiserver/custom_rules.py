"""Rules of custom resources (``x-kubernetes-validations``), which a real API server evaluates as CEL.

Here the forms of rules in the definitions of PathwaysJob, JobSet and Kueue are known, each with the same meaning in
Python. A definition may have others: they are not evaluated, and its author gets a warning that says so.

A rule with ``oldSelf`` is a transition rule: it is evaluated only when an object is updated, and only where its value
existed before. Items of a list are matched with their earlier selves by the list's map keys; in a list without them
there is no earlier self.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pathways_jupyter.local.apiserver.custom import type_name
from pathways_jupyter.local.apiserver.resources import Object

_ABSENT: Any = object()
Causes = Iterator[tuple[str, str]]
Holds = Callable[[Any, Any], bool]
"""Test of a value and its previous value, true if the rule holds; raises when a field is missing, as CEL does."""


def rule_causes(schema: Mapping[str, Any], new: Object, old: Object | None = None) -> Causes:
    """Yield the rules that an object breaks, with the paths of the fields.

    Args:
      old: The object before an update; None for a new object.
    """
    # Rules at the root see a part of the metadata only, as in a real API server.
    visible = []
    for obj in (new, old or {}):
        metadata = obj.get("metadata") or {}
        visible.append({**obj, "metadata": {key: metadata[key] for key in ("name", "generateName") if key in metadata}})
    yield from _check(schema, visible[0], visible[1] if old is not None else _ABSENT, "")


def unknown_rules(schema: Any) -> Iterator[str]:
    """Yield the rules of a schema that are not evaluated."""
    if isinstance(schema, dict):
        for rule in schema.get("x-kubernetes-validations") or ():
            if isinstance(rule, dict) and isinstance(rule.get("rule"), str) and evaluator(rule["rule"]) is None:
                yield rule["rule"]
    for child in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from unknown_rules(child)


@functools.lru_cache(maxsize=512)
def evaluator(rule: str) -> Holds | None:
    """Return the function that evaluates a rule, or None for a rule of another form."""
    for pattern, meaning in _FORMS.items():
        if (match := re.fullmatch(pattern, rule)) is not None:
            return functools.partial(meaning, *match.groups())
    return None


def _check(schema: Mapping[str, Any], new: Any, old: Any, path: str) -> Causes:
    if new is None:
        return
    for rule in schema.get("x-kubernetes-validations") or ():
        holds = evaluator(rule["rule"])
        if holds is None or (old is _ABSENT and re.search(r"\boldSelf\b", rule["rule"])):
            continue
        try:
            why = "" if holds(new, old) else str(rule.get("message") or f"failed rule: {rule['rule']}")
        except (KeyError, TypeError, IndexError) as error:
            # A field that is not there, for example; a real API server refuses the object too.
            why = f"rule evaluation error: {error}"
        if why:
            where = (path + rule.get("fieldPath", "")).lstrip(".") or "<root>"
            yield where, f'Invalid value: "{type_name(new)}": {why}'
    if isinstance(new, dict):
        properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
        before = old if isinstance(old, dict) else {}
        for key, value in new.items():
            inner = properties.get(key) or (more if isinstance(more, dict) else None)
            if inner is not None:
                yield from _check(inner, value, before.get(key, _ABSENT), f"{path}.{key}")
    elif isinstance(new, list) and isinstance(schema.get("items"), dict):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        earlier = {_identity(each, keys): each for each in old} if keys and isinstance(old, list) else {}
        for index, value in enumerate(new):
            before_item = earlier.get(_identity(value, keys), _ABSENT) if keys else _ABSENT
            yield from _check(schema["items"], value, before_item, f"{path}[{index}]")


def _identity(item: Any, keys: Any) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in keys) if isinstance(item, dict) else (item,)


def _unchanged(new: Any, old: Any) -> bool:
    # To Python, True is equal to 1; to CEL it is not.
    return json.dumps(new, sort_keys=True) == json.dumps(old, sort_keys=True)


def _has_known_topology(machine: str, listed: str, pattern: str | None, new: Any, _: Any) -> bool:
    topology = new["topology"]
    if new["type"] != machine or topology in _texts(listed):
        return True
    return pattern is not None and re.fullmatch(pattern, topology) is not None


def _texts(listed: str) -> list[str]:
    """Return the texts of a list such as ``'a', 'b'``."""
    return re.findall(r"'([^']*)'", listed)


_FORMS: Mapping[str, Callable[..., bool]] = {
    r"self == oldSelf": _unchanged,
    r"!has\(self\.(\w+)\)": lambda key, new, _: key not in new,
    r"has\(self\.(\w+)\) == has\(oldSelf\.\1\)": lambda key, new, old: (key in new) == (key in old),
    r"size\(self\.metadata\.name\) <= (\d+) && self\.metadata\.name\.matches\('\^([^']+)\$'\)": (
        lambda longest, pattern, new, _: (
            len(new["metadata"]["name"]) <= int(longest) and bool(re.fullmatch(pattern, new["metadata"]["name"]))
        )
    ),
    r"!has\(self\.(\w+)\.(\w+)\) \|\| size\(self\.(\w+)\) == 0 \|\| self\.\1\.\2 <= self\.\3\[0\]\.(\w+)": (
        lambda part, key, items, limit, new, _: (
            key not in new[part] or not new[items] or new[part][key] <= new[items][0][limit]
        )
    ),
    # Topologies that are listed, or that fit a pattern too.
    r"self\.type != '([^']*)' \|\| \(?self\.topology in \[([^]]*)\]"
    r"(?: \|\| self\.topology\.matches\('\^([^']+)\$'\)\))?": _has_known_topology,
    r"!\(self\.(\w+) in \[([^]]*)\]\)": lambda key, listed, new, _: new[key] not in _texts(listed),
    r"!has\(self\.(\w+)\) \|\| self\.\1\.spec\.containers\.exists\(c, c\.name == self\.(\w+)\)": (
        lambda part, key, new, _: (
            part not in new or any(each["name"] == new[key] for each in new[part]["spec"]["containers"])
        )
    ),
    r"self\.(\w+) != '([^']*)' \|\| \(has\(self\.(\w+)\) && self\.\3 != ''\)": (
        lambda key, value, needed, new, _: new[key] != value or bool(new.get(needed))
    ),
}
"""The known forms of rules as regular expressions, whose groups are the first arguments of their meanings."""
