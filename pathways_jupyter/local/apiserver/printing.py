"""Tables for ``kubectl get``: formed by the server, so that every client shows the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pathways_jupyter.local.apiserver.columns import COLUMNS, age
from pathways_jupyter.local.apiserver.jsonpath import first_value
from pathways_jupyter.local.apiserver.resources import Column, Object, ResourceType

_NAME = Column("Name", ".metadata.name", description="The object's name.")
_AGE = Column("Age", ".metadata.creationTimestamp", "date", "How long ago the object was created.")


def as_table(resource: ResourceType, objects: Sequence[Object], revision: str, include: str = "") -> Object:
    """Objects as a ``Table``.

    Args:
      include: What of each object to put beside its row: ``Metadata`` (also when empty), ``Object`` or ``None``.
    """
    definitions, rows = _rows(resource, objects)
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
        "rows": [{"cells": cells, **_beside(obj, include)} for cells, obj in zip(rows, objects, strict=True)],
    }


def as_metadata(obj: Object) -> Object:
    """`obj` reduced to its metadata, as a ``PartialObjectMetadata``."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _beside(obj: Object, include: str) -> Object:
    if include == "None":
        return {}
    return {"object": obj if include == "Object" else as_metadata(obj)}


def _rows(resource: ResourceType, objects: Sequence[Object]) -> tuple[Sequence[Column], list[list[Any]]]:
    if not resource.custom and resource.plural in COLUMNS:
        definitions, cells = COLUMNS[resource.plural]
        return definitions, [cells(obj) for obj in objects]
    definitions = (_NAME, *(resource.columns or (_AGE,)))
    return definitions, [[_cell(obj, column) for column in definitions] for obj in objects]


def _cell(obj: Object, column: Column) -> Any:
    value = first_value(column.path, obj)
    if column.type == "date":
        return age(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str | int | float) else str(value)
