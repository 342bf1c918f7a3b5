"""Attribute maps: the protocol's small typed dictionaries, for devices, clients and cost analyses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Attribute = bool | int | float | str | Sequence[int]


def write(message: Any, values: Mapping[str, Attribute]) -> None:
    """Fills an AttributeMapProto."""
    message.SetInParent()
    for name, value in values.items():
        entry = message.attributes[name]
        if isinstance(value, bool):
            entry.bool_value = value
        elif isinstance(value, int):
            entry.int64_value = value
        elif isinstance(value, float):
            entry.float_value = value
        elif isinstance(value, str):
            entry.string_value = value.encode()
        else:
            entry.int64_list_value.SetInParent()
            entry.int64_list_value.elements.extend(value)
