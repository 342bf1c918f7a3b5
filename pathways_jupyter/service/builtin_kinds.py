"""Kubernetes' built-in kinds: the names and types of their fields, and these as the schema of a custom resource.

The data is that of the official Python client (``tools/make_schemas.py``). The API server of the embedded cluster
checks with it what is posted; PathwaysJob and JobSet embed the schema of a pod, as the definitions of Google's
controller and of JobSet do.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

QUANTITY = r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?"
"""The grammar of an amount of memory, CPU, or of another resource: a number and its unit."""

_UNITS = {unit: Decimal(1000) ** power for power, unit in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)}
_UNITS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)}
_LARGEST = Decimal(2**63 - 1)
_PLAIN: Mapping[str, Mapping[str, Any]] = {
    "quantity": {"x-kubernetes-int-or-string": True, "pattern": f"^{QUANTITY}$"},
    "int-or-string": {"x-kubernetes-int-or-string": True},
    "time": {"type": "string", "format": "date-time"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
_METADATA = ("annotations", "finalizers", "labels", "name", "namespace")
"""Fields of the metadata of an object inside another one."""


def amount(quantity: object) -> Decimal:
    """Return the number that a quantity stands for; as in Kubernetes, one whose size is beyond 2**63 - 1 is that.

    Raises:
      ValueError: It is none.
    """
    match = re.fullmatch(QUANTITY, str(quantity))
    if match is None:
        raise ValueError(f"{quantity} is not a quantity")
    number, unit = match[1], match[2] or ""
    value = Decimal(number) * _UNITS[unit] if unit in _UNITS else Decimal(number + unit)
    return max(-_LARGEST, min(value, _LARGEST))


@functools.cache
def kinds() -> Mapping[str, Mapping[str, str]]:
    """Return the fields of each kind; see ``tools/make_schemas.py`` for the notation."""
    text = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    by_kind: Mapping[str, Mapping[str, str]] = json.loads(text)
    return by_kind


@functools.cache
def fields(kind: str) -> Mapping[str, tuple[str, bool]]:
    """Return a kind's fields: type, and whether it must be there."""
    return {key.removesuffix("!"): (value, key.endswith("!")) for key, value in kinds()[kind].items()}


@functools.cache
def schema(kind: str) -> dict[str, Any]:
    """Return a kind's structural OpenAPI schema; it is shared, so copy it before a change."""
    if kind.startswith("[]"):
        return {"type": "array", "items": schema(kind[2:])}
    if kind.startswith("{}"):
        return {"type": "object", "additionalProperties": schema(kind[2:])}
    if kind not in kinds():
        return {**_PLAIN.get(kind, {"type": kind})}
    typed = {key: each for key, each in fields(kind).items() if kind != "ObjectMeta" or key in _METADATA}
    required = [key for key, (_, must) in typed.items() if must]
    properties = {key: schema(inner) for key, (inner, _) in typed.items()}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}
