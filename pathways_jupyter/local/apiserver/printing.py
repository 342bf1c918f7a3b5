"""Tables for ``kubectl get``: formed by the server, so that every client shows the same.

The printer columns of custom resource definitions are JSONPath, of which the subset is here that they use.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pathways_jupyter.local.apiserver.columns import COLUMNS, age
from pathways_jupyter.local.apiserver.resources import Column, Object, ResourceType

_NAME = Column("Name", ".metadata.name", description="The object's name.")
_AGE = Column("Age", ".metadata.creationTimestamp", "date", "How long ago the object was created.")


def as_table(resource: ResourceType, objects: Sequence[Object], revision: str, include: str = "") -> Object:
    """Objects as a ``Table``.

    Args:
      include: What of each object to put beside its row: ``Metadata`` (also when empty), ``Object`` or ``None``.
    """
    definitions: Sequence[Column] = (_NAME, *(resource.columns or (_AGE,)))
    built_in = None if resource.custom else COLUMNS.get(resource.plural)
    if built_in is not None:
        definitions = built_in[0]
    rows = []
    for obj in objects:
        row: Object = {
            "cells": built_in[1](obj) if built_in is not None else [_cell(obj, column) for column in definitions]
        }
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            }
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision},
        "columnDefinitions": [
            {
                "name": each.name,
                "type": "string" if each.type == "date" else each.type,
                "format": "name" if each.name == "Name" else "",
                "description": each.description,
                "priority": each.priority,
            }
            for each in definitions
        ],
        "rows": rows,
    }


def _cell(obj: Object, column: Column) -> Any:
    value = first_value(column.path, obj)
    if column.type == "date":
        return age(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str | int | float) else str(value)


_STEP = re.compile(
    r"""\.(?P<field>[A-Za-z_$][\w$-]*)
    |\[(?P<index>-?\d+)\]
    |\[(?P<all>\*)\]
    |\['(?P<quoted>(?:[^'\\]|\\.)*)'\]
    |\[\?\(@\.(?P<key>[\w.-]+)\s*==\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)\)\]""",
    re.VERBOSE,
)

_Step = Callable[[Any], Iterable[Any]]


def first_value(path: str, obj: Any) -> Any:
    """The first thing that `path` finds in `obj`; None when it finds nothing or cannot be read."""
    found = [obj]
    for step in _compile(path):
        found = [value for each in found for value in step(each)]
    return found[0] if found else None


@functools.lru_cache(maxsize=512)
def _compile(path: str) -> tuple[_Step, ...]:
    path = path.strip().removeprefix("{").removesuffix("}").replace("\\.", "\0")
    path = path if path.startswith((".", "[")) else f".{path}"
    steps, position = [], 0
    while position < len(path):
        match = _ESCAPED.match(path, position) or _STEP.match(path, position)
        if match is None:
            return (lambda _: (),)
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


_ESCAPED = re.compile(r"\.(?P<field>[^.\[\]]*\0[^.\[\]]*)")


def _step(match: re.Match[str]) -> _Step:
    groups = match.groupdict()
    if groups.get("field") is not None or groups.get("quoted") is not None:
        name = (groups.get("field") or groups.get("quoted") or "").replace("\0", ".")
        return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()
    if groups["index"] is not None:
        index = int(groups["index"])
        return lambda value: value[index:][:1] if isinstance(value, list) else ()
    if groups["all"]:
        return lambda value: value if isinstance(value, list) else ()
    key, wanted = groups["key"], groups["value"]
    return lambda value: (
        [each for each in value if isinstance(each, dict) and str(each.get(key)) == wanted]
        if isinstance(value, list)
        else ()
    )
