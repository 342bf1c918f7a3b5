"""Write ``builtin_kinds.json``: the fields of Kubernetes' built-in kinds and their types, as its own client has them.

Run by hand (``python tools/make_schemas.py``) when the Python client's major version changes. The
client's own models cannot serve in its place: importing them costs more than starting the whole cluster.
"""

from __future__ import annotations

import datetime
import json
import types
import typing
from pathlib import Path
from typing import Any

from pathways_jupyter.local.apiserver.resources import BUILTIN

TARGET = Path(__file__).parents[1] / "pathways_jupyter" / "service" / "builtin_kinds.json"
_MODELS = {"Event": "CoreV1Event"}
_ANY = {"V1JSONSchemaProps", "V1ManagedFieldsEntry"}
_QUANTITIES = {"limits", "requests", "capacity", "allocatable", "allocatedResources", "overhead", "min", "max", "used"}
_SINGLE_QUANTITIES = {"divisor", "sizeLimit"}
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", datetime.datetime: "time", bytes: "string"}


def make() -> dict[str, dict[str, str]]:
    """Fields by kind: a plain type, another kind's name, ``[]TYPE`` or ``{}TYPE``; ``!`` marks what must be there."""
    import kubernetes.client.models as models

    kinds: dict[str, dict[str, str]] = {}
    # Kueue's own API server has its kind, which the client does not know.
    official = [each for each in BUILTIN if not each.group.endswith("kueue.x-k8s.io")]
    waiting = [getattr(models, _MODELS.get(each.kind, f"V1{each.kind}")) for each in official]
    while waiting:
        model = waiting.pop()
        name = _name(model)
        if name in kinds:
            continue
        fields = kinds[name] = {}
        for key, field in model.model_fields.items():
            alias = _alias(key, field)
            found: list[Any] = []
            kind = _type(field.annotation, found)
            if alias in _QUANTITIES and kind == "{}string":
                kind = "{}quantity"
            if alias in _SINGLE_QUANTITIES and kind == "string":
                kind = "quantity"
            fields[alias + ("!" if field.is_required() else "")] = kind
            waiting += found
    return dict(sorted(kinds.items()))


def _alias(key: str, field: Any) -> str:
    if field.validation_alias is not None:
        choices = getattr(field.validation_alias, "choices", [field.validation_alias])
        return str(choices[0])
    return str(field.alias or key)


def _name(model: type) -> str:
    name = model.__name__
    return name.removeprefix("Core").removeprefix("V1")


def _type(annotation: Any, found: list[Any]) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0], found)
    if origin in (typing.Union, types.UnionType):
        options = {_type(each, found) for each in arguments if each is not type(None)}
        if len(options) == 1:
            return options.pop()
        return "int-or-string" if options == {"integer", "string"} else "any"
    if origin is list:
        return "[]" + _type(arguments[0], found)
    if origin is dict:
        return "{}" + _type(arguments[1], found)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and hasattr(annotation, "model_fields") and annotation.__name__ not in _ANY:
        found.append(annotation)
        return _name(annotation)
    return "any"


if __name__ == "__main__":
    TARGET.write_text(json.dumps(make(), indent=0, separators=(",", ":")) + "\n", encoding="utf-8")
