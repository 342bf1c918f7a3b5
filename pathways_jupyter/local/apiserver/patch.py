"""The three ways to patch an object: JSON patch, merge patch, and strategic merge patch (which knows lists' keys)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import StatusError, bad_request


class PatchKind(StrEnum):
    """Kinds of patches, by content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
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

PLAIN_SETS = frozenset({"finalizers"})
"""Lists of plain values that a strategic patch adds to instead of replacing."""


def apply_patch(target: Any, patch: Any, kind: PatchKind) -> Any:
    """Return `target` patched; `target` itself is not changed.

    Raises:
      StatusError: 400 or 422, the patch is malformed or does not fit.
    """
    if kind is PatchKind.JSON:
        return json_patch(target, patch)
    if not isinstance(patch, dict):
        raise bad_request(f"a {kind.name.lower()} patch must be an object")
    return merge_patch(target, patch) if kind is PatchKind.MERGE else strategic_patch(target, patch)


def clone(value: Any) -> Any:
    """A copy of JSON data that shares nothing with the original."""
    if type(value) is dict:
        return {key: clone(each) for key, each in value.items()}
    if type(value) is list:
        return [clone(each) for each in value]
    return value


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, None removes, everything else replaces."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902: a list of operations, applied all or none."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    document = clone(target)
    for each in operations:
        if not isinstance(each, dict) or not isinstance(each.get("path"), str):
            raise bad_request(f"not a JSON patch operation: {each!r}")
        document = _operate(document, each)
    return document


def strategic_patch(target: Any, patch: Any, field: str = "") -> Any:
    """Merge like a merge patch, but lists of named elements merge by name and follow ``$patch`` directives."""
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
    for directive, wanted in patch.items():
        name, _, field = directive.partition("/")
        elements = result.get(field)
        if not isinstance(wanted, list) or not isinstance(elements, list):
            continue
        if name == "$deleteFromPrimitiveList":
            result[field] = [each for each in elements if each not in wanted]
        elif name == "$setElementOrder":
            # Elements that the order does not name go to the end.
            key = merge_key(field, elements)
            places = [{key: each.get(key)} if key and isinstance(each, dict) else each for each in elements]
            ranks = [wanted.index(place) if place in wanted else len(wanted) for place in places]
            result[field] = [elements[index] for index in sorted(range(len(elements)), key=ranks.__getitem__)]
    return result


def merge_key(field: str, *lists: list[Any]) -> str | None:
    """The merge key of the list `field`, or None for a list that is replaced as a whole."""
    elements = [each for elements in lists for each in elements]
    if not elements or not all(isinstance(each, dict) for each in elements):
        return None
    named = [each for each in elements if set(each) != {"$patch"}]
    for key in MERGE_KEYS.get(field, ()):
        if named and all(key in each for each in named):
            return key
    return None


def _strategic_list(target: list[Any], patch: list[Any], field: str) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [clone(each) for each in patch if each != {"$patch": "replace"}]
    if field in PLAIN_SETS:
        return [*target, *(each for each in patch if each not in target)]
    key = merge_key(field, target, patch)
    if key is None:
        return [clone(each) for each in patch]
    result = list(target)
    for each in patch:
        place = next((i for i, old in enumerate(result) if old.get(key) == each.get(key)), None)
        if each.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != each.get(key)]
        elif place is None:
            result.append(strategic_patch({}, each))
        else:
            result[place] = strategic_patch(result[place], each)
    return result


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    name, path = operation.get("op"), _pointer(operation["path"])
    if name in ("add", "replace", "test") and "value" not in operation:
        raise bad_request(f"JSON patch operation {name!r} needs a value")
    if name == "test":
        if _find(document, path) != operation["value"]:
            raise _unfit(f"testing path {operation['path']} failed")
        return document
    if name == "remove":
        return _remove(document, path)
    if name == "replace":
        _find(document, path)
        return _add(document, path, clone(operation["value"]), replace=True)
    if name == "add":
        return _add(document, path, clone(operation["value"]))
    if name in ("move", "copy"):
        if not isinstance(operation.get("from"), str):
            raise bad_request(f"JSON patch operation {name!r} needs a from")
        source = _pointer(operation["from"])
        value = clone(_find(document, source))
        if name == "move" and path[: len(source)] == source and path != source:
            raise _unfit(f"cannot move {operation['from']} into itself")
        return _add(_remove(document, source) if name == "move" else document, path, value)
    raise bad_request(f"unknown JSON patch operation {name!r}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise bad_request(f"not a JSON pointer: {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(step: str, length: int) -> int:
    if not (step.isascii() and step.isdigit()) or (step != "0" and step.startswith("0")) or int(step) >= length:
        raise _unfit(f"there is no element {step} in a list of {length}")
    return int(step)


def _find(document: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(step, len(document))]
        else:
            raise _unfit(f"there is nothing at {step!r}")
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise _unfit("the whole object cannot be removed")
    parent = _find(document, path[:-1])
    _find(parent, path[-1:])
    if isinstance(parent, list):
        del parent[int(path[-1])]
    else:
        del parent[path[-1]]
    return document


def _add(document: Any, path: list[str], value: Any, *, replace: bool = False) -> Any:
    if not path:
        return value
    parent, step = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[step] = value
    elif not isinstance(parent, list):
        raise _unfit(f"{step!r} cannot be added to a plain value")
    elif replace:
        parent[_index(step, len(parent))] = value
    else:
        parent.insert(len(parent) if step == "-" else _index(step, len(parent) + 1), value)
    return document


def _unfit(why: str) -> StatusError:
    return StatusError(f"the JSON patch does not apply: {why}", status=422, reason="Invalid")
