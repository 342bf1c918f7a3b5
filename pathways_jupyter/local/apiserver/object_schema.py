"""Schema validation of what a client sent: types, unknown fields, and the rules of custom resources.

Everything past this point may count on the shapes; without it a malformed object would surface as a server error.
"""

from __future__ import annotations

import re
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import bad_request, invalid
from pathways_jupyter.local.apiserver.custom import check_custom
from pathways_jupyter.local.apiserver.custom_rules import unknown_rules
from pathways_jupyter.local.apiserver.resources import CRDS, Object, ResourceType
from pathways_jupyter.service.builtin_kinds import QUANTITY, fields, kinds

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_MICRO_TIMES = {"acquireTime", "renewTime", "eventTime", "lastObservedTime"}
"""Fields of type MicroTime, whose text must have exactly six digits after the point: our own leases and events."""
_LARGEST = 2**63
_UNCHECKED = ("status", "involvedObject")
"""Parts in which a real API server does not require required fields either."""


class _Misfit(Exception):
    """A value of the wrong type."""

    def __init__(self, path: str, expected: str, value: Any) -> None:
        names = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
        got = f"the string {value[:40]!r}" if isinstance(value, str) else names.get(type(value), "null")
        super().__init__(f"{path.lstrip('.')}: expected {expected}, got {got}")


def check_object(resource: ResourceType, obj: Object, validation: str) -> tuple[Object, list[str]]:
    """Check what a client sent; return it without the fields that its kind does not have, and warnings.

    Args:
      validation: What to do about unknown fields: ``Strict`` refuses, ``Warn`` warns, ``Ignore`` drops them silently.

    Raises:
      StatusError: 400 for wrong types and, when strict, unknown fields; 422 for missing or forbidden values.
    """
    if validation not in ("", "Strict", "Warn", "Ignore"):
        raise bad_request(f'fieldValidation: Unsupported value: "{validation}"')
    unknown: list[str] = []
    missing: list[tuple[str, str]] = []
    try:
        if resource.custom:
            metadata = _value(obj.get("metadata") or {}, "ObjectMeta", ".metadata", unknown, missing)
            value = {**check_custom(resource, obj, unknown), "metadata": metadata}
        else:
            value = _value(obj, resource.kind, "", unknown, missing)
    except _Misfit as error:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        ) from error
    warnings = [f'unknown field "{path.lstrip(".")}"' for path in unknown]
    if validation == "Strict" and warnings:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}:'
            f" strict decoding error: {', '.join(warnings)}"
        )
    if missing:
        raise invalid(resource, str(value.get("metadata", {}).get("name", "")), missing)
    if validation == "Ignore":
        warnings = []
    if resource.key == CRDS.key and (rules := list(unknown_rules(value))):
        warnings.append(f"the embedded cluster does not evaluate {len(rules)} of its rules: {'; '.join(rules)[:500]}")
    return value, warnings


def _value(value: Any, kind: str, path: str, unknown: list[str], missing: list[tuple[str, str]]) -> Any:
    if kind == "any":
        return value
    if kind.startswith("[]"):
        if not isinstance(value, list):
            raise _Misfit(path, "a list", value)
        return [_value(each, kind[2:], f"{path}[{i}]", unknown, missing) for i, each in enumerate(value)]
    if kind.startswith("{}"):
        if not isinstance(value, dict):
            raise _Misfit(path, "an object", value)
        return {key: _value(each, kind[2:], f"{path}.{key}", unknown, missing) for key, each in value.items()}
    if kind not in kinds():
        return _plain(value, kind, path)
    if not isinstance(value, dict):
        raise _Misfit(path, "an object", value)
    declared, values = fields(kind), {}
    for key, each in value.items():
        if key not in declared:
            unknown.append(f"{path}.{key}")
        elif each is not None:
            values[key] = _value(each, declared[key][0], f"{path}.{key}", unknown, missing)
            if key in _MICRO_TIMES and not _MICRO_TIME.fullmatch(str(each)):
                raise _Misfit(f"{path}.{key}", "a time with microseconds, as in 2006-01-02T15:04:05.000000Z", each)
    if not path.startswith(tuple(f".{each}" for each in _UNCHECKED)):
        needed = [key for key, (_, must) in declared.items() if must and key not in values]
        missing += [(f"{path}.{key}".lstrip("."), "Required value") for key in needed]
    return values


def _plain(value: Any, kind: str, path: str) -> Any:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if kind == "quantity":
        text = str(value) if is_integer or isinstance(value, float) else value
        if not isinstance(text, str) or not re.fullmatch(QUANTITY, text):
            raise _Misfit(path, "a quantity", value)
        return text
    fits = {
        "string": isinstance(value, str),
        "integer": is_integer and -_LARGEST <= value < _LARGEST,
        "number": is_integer or isinstance(value, float),
        "boolean": isinstance(value, bool),
        "int-or-string": isinstance(value, str) or (is_integer and -_LARGEST <= value < _LARGEST),
        "time": isinstance(value, str) and bool(_TIME.fullmatch(value)),
    }
    if not fits[kind]:
        raise _Misfit(path, f"a {kind}" if kind != "integer" else "an integer", value)
    return value
