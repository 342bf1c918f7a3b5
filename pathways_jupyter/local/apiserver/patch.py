"""Patches of objects: merge patch, and strategic merge patch, which knows the keys of lists."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class PatchKind(StrEnum):
    """Kinds of patches, by content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"
    """Merged like the others, and creates what does not exist; no field has an owner here."""


_MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "conditions": ("type",),
    "addresses": ("type",),
    "taints": ("key",),
    "ownerReferences": ("uid",),
    "secrets": ("name",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
}
"""Lists whose elements are merged by a key, with the keys that may name an element."""


def clone(value: Any) -> Any:
    """Return a copy of JSON data that shares nothing with the original."""
    if type(value) is dict:
        return {key: clone(each) for key, each in value.items()}
    if type(value) is list:
        return [clone(each) for each in value]
    return value


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, None removes, everything else replaces. `target` itself is not changed."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_patch(target: Any, patch: Any, field: str = "") -> Any:
    """Merge like a merge patch, but lists of named elements merge by name and follow the directives of kubectl."""
    if isinstance(patch, list):
        return _strategic_list(target if isinstance(target, list) else [], patch, field)
    if not isinstance(patch, dict):
        return clone(patch)
    if patch.get("$patch") == "replace":
        return {key: clone(value) for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if isinstance(retained := patch.get("$retainKeys"), list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = strategic_patch(result.get(key), value, key)
    for directive, values in patch.items():
        name, _, field = directive.partition("/")
        elements = result.get(field)
        if not isinstance(values, list) or not isinstance(elements, list):
            continue
        if name == "$deleteFromPrimitiveList":
            result[field] = [each for each in elements if each not in values]
        elif name == "$setElementOrder":
            # Elements that the order does not name go to the end.
            key = _merge_key(field, elements)
            keys = [{key: each.get(key)} if key and isinstance(each, dict) else each for each in elements]
            ranks = [values.index(element_key) if element_key in values else len(values) for element_key in keys]
            result[field] = [elements[index] for index in sorted(range(len(elements)), key=ranks.__getitem__)]
    return result


def _merge_key(field: str, *lists: list[Any]) -> str | None:
    """Return the key that every element of the list `field` has, or None for a list that is replaced as a whole."""
    elements = [each for elements in lists for each in elements]
    if not all(isinstance(each, dict) for each in elements):
        return None
    named = [each for each in elements if set(each) != {"$patch"}]
    return next((key for key in _MERGE_KEYS.get(field, ()) if named and all(key in each for each in named)), None)


def _strategic_list(target: list[Any], patch: list[Any], field: str) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [clone(each) for each in patch if each != {"$patch": "replace"}]
    if field == "finalizers":
        return [*target, *(each for each in patch if each not in target)]
    key = _merge_key(field, target, patch)
    if key is None:
        return [clone(each) for each in patch]
    result = list(target)
    for each in patch:
        index = next((i for i, old in enumerate(result) if old.get(key) == each.get(key)), None)
        if each.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != each.get(key)]
        elif index is None:
            result.append(strategic_patch({}, each))
        else:
            result[index] = strategic_patch(result[index], each)
    return result
