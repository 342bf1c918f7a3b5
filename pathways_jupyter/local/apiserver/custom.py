"""Meaning of the schemas of custom resources: pruning, defaults and validation."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import invalid
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import Object, ResourceType

Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_KEEP = "x-kubernetes-preserve-unknown-fields"


def type_name(value: Any) -> str:
    """Return JSON Schema's name of a value's type."""
    # The bool first: to Python, it is an integer too.
    names = ((bool, "boolean"), *((kind, name) for name, kinds in _TYPES.items() for kind in kinds))
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def check_custom(resource: ResourceType, obj: Object, unknown: list[str]) -> Object:
    """Return a custom resource without unknown fields, whose paths are added to `unknown`.

    Raises:
      StatusError: 422, it breaks a rule of its schema.
    """
    if not resource.schema:
        return obj
    causes: list[tuple[str, str]] = []
    plain = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    checked = _check(plain, resource.schema, "", causes, unknown, top=True)
    if causes:
        name = obj.get("metadata", {}).get("name", "") if isinstance(obj.get("metadata"), dict) else ""
        raise invalid(resource, str(name), causes)
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **checked}


def fill_defaults(schema: Schema, value: Any) -> Any:
    """Return `value` with the schema's defaults for absent fields."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        more = schema.get("additionalProperties")
        filled = dict(value)
        for key, inner in properties.items():
            if key not in filled and "default" in inner:
                filled[key] = clone(inner["default"])
        for key, each in filled.items():
            inner = properties.get(key) or (more if isinstance(more, dict) else {})
            filled[key] = fill_defaults(inner, each)
        return filled
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [fill_defaults(schema["items"], each) for each in value]
    return value


def _check(
    value: Any, schema: Schema, path: str, causes: list[tuple[str, str]], unknown: list[str], *, top: bool = False
) -> Any:
    if value is None and schema.get("nullable"):
        return None
    where = path.lstrip(".") or "<root>"
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, int | str) and not isinstance(value, bool)
    else:
        types = _TYPES.get(schema.get("type", ""))
        fits = types is None or (isinstance(value, types) and (bool in types or not isinstance(value, bool)))
    if not fits:
        kind, got = schema.get("type", "integer,string"), type_name(value)
        causes.append((where, f'Invalid value: "{got}": {where} in body must be of type {kind}: "{got}"'))
        return value
    causes += [(where, why) for why in _limits(value, schema)]
    if isinstance(value, dict):
        return _check_object(value, schema, path, causes, unknown, top)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        keys, seen = schema.get("x-kubernetes-list-map-keys") or (), []
        for index, each in enumerate(value if keys else ()):
            identity = [each.get(key) for key in keys] if isinstance(each, dict) else each
            if identity in seen:
                causes.append((f"{where}[{index}]", f"Duplicate value: {dict(zip(keys, identity, strict=False))}"))
            seen.append(identity)
        return [_check(each, schema["items"], f"{path}[{i}]", causes, unknown) for i, each in enumerate(value)]
    return value


def _check_object(
    value: Object, schema: Schema, path: str, causes: list[tuple[str, str]], unknown: list[str], top: bool
) -> Object:
    properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
    values: Object = {}
    for key, each in value.items():
        inner = properties.get(key)
        if inner is None and isinstance(more, dict):
            inner = more
        if inner is not None:
            if each is None and not inner.get("nullable"):
                continue
            values[key] = _check(each, inner, f"{path}.{key}", causes, unknown)
        elif schema.get(_KEEP) or more is True or not (properties or more is False or "type" in schema):
            values[key] = each
        else:
            unknown.append(f"{path}.{key}")
    for key in schema.get("required") or ():
        if key not in values and not (top and key in ("metadata", "kind", "apiVersion")):
            default = "default" in (properties.get(key) or {})
            causes += [] if default else [(f"{path}.{key}".lstrip("."), "Required value")]
    return values


_SIZES: Mapping[type, tuple[str, str, str]] = {
    str: ("minLength", "maxLength", "characters"),
    list: ("minItems", "maxItems", "items"),
    dict: ("minProperties", "maxProperties", "properties"),
}


def _limits(value: Any, schema: Schema) -> list[str]:
    why = []
    if schema.get("enum") and value not in schema["enum"]:
        listed = ", ".join(f'"{each}"' for each in schema["enum"])
        why.append(f'Unsupported value: "{value}": supported values: {listed}')
    if isinstance(value, str) and schema.get("pattern") and not re.search(schema["pattern"], value):
        why.append(f'Invalid value: "{value}": must match {schema["pattern"]!r}')
    if type(value) in _SIZES:
        low, high, unit = _SIZES[type(value)]
        if len(value) < schema.get(low, 0):
            why.append(f"Invalid value: should have at least {schema[low]} {unit}")
        if len(value) > schema.get(high, math.inf):
            why.append(f"Too many: {len(value)}: must have at most {schema[high]} {unit}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", -math.inf):
            why.append(f"Invalid value: {value}: must be greater than or equal to {schema['minimum']}")
        if value > schema.get("maximum", math.inf):
            why.append(f"Invalid value: {value}: must be less than or equal to {schema['maximum']}")
    return why
