"""CEL rules of custom resources (``x-kubernetes-validations``).

A rule with ``oldSelf`` is a transition rule: it is evaluated only when an object is updated, and only where its value
existed before. Items of a list are matched with their earlier selves by the list's map keys; in a list without them
there is no earlier self. CEL is imported with the first rule that is used, because most clusters use none.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

_OLD = re.compile(r"\boldSelf\b")
_ABSENT: Any = object()
_KINDS: Mapping[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
}

Causes = Iterator[tuple[str, str]]


def rule_causes(schema: Mapping[str, Any], new: Any, old: Any = _ABSENT) -> Causes:
    """Yield the rules that an object breaks, with the paths of the fields.

    Args:
      old: The object before an update; leave it out for a new object.
    """
    # Rules at the root see a part of the metadata only, as in a real API server.
    yield from _check(schema, _visible(new), _ABSENT if old is _ABSENT else _visible(old), "")


def syntax_error(rule: str) -> str:
    """Return why a rule cannot be compiled; empty when it can."""
    try:
        _compiled(rule)
    except RuntimeError as error:
        return " ".join(str(error).split("[INVALID_ARGUMENT]")[0].split())
    return ""


def _check(schema: Mapping[str, Any], new: Any, old: Any, path: str) -> Causes:
    if new is None:
        return
    for rule in schema.get("x-kubernetes-validations") or ():
        if old is _ABSENT and _OLD.search(rule["rule"]):
            continue
        if (why := _broken(rule, new, None if old is _ABSENT else old)) is not None:
            where = (path + rule.get("fieldPath", "")).lstrip(".") or "<root>"
            yield where, f'Invalid value: "{_KINDS.get(type(new), "value")}": {why}'
    if isinstance(new, dict):
        properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
        before = old if isinstance(old, dict) else {}
        for key, value in new.items():
            inner = properties.get(key) or (more if isinstance(more, dict) else None)
            if inner is not None:
                yield from _check(inner, value, before.get(key, _ABSENT), f"{path}.{key}")
    elif isinstance(new, list) and isinstance(schema.get("items"), dict):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        known = {_identity(each, keys): each for each in old} if keys and isinstance(old, list) else {}
        for index, value in enumerate(new):
            before_item = known.get(_identity(value, keys), _ABSENT) if keys else _ABSENT
            yield from _check(schema["items"], value, before_item, f"{path}[{index}]")


def _broken(rule: Mapping[str, Any], new: Any, old: Any) -> str | None:
    """Return the message of a rule that does not hold; None when it holds."""
    data = {"self": new, "oldSelf": old}
    found = _compiled(rule["rule"]).eval(data=data).value()
    if found is True:
        return None
    if found is not False:
        # An error, for example a field that is not there; a real API server refuses the object too.
        return f"rule evaluation error: {found}"
    if "messageExpression" in rule:
        text = _compiled(rule["messageExpression"]).eval(data=data).value()
        if isinstance(text, str) and text:
            return text
    return str(rule.get("message") or f"failed rule: {rule['rule']}")


@functools.lru_cache(maxsize=512)
def _compiled(rule: str) -> Any:
    return _environment().compile(rule)


@functools.cache
def _environment() -> Any:
    from cel_expr_python import cel

    return cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN})


def _identity(item: Any, keys: Any) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in keys) if isinstance(item, dict) else (item,)


def _visible(obj: Any) -> Any:
    metadata = obj.get("metadata") or {}
    seen = {key: metadata[key] for key in ("name", "generateName") if key in metadata}
    return {**obj, "metadata": seen}
