"""Server-side apply: each manager owns the fields that it last wrote, and only ``force`` takes them from another.

Ownership is kept where real servers keep it, in ``metadata.managedFields``. Who creates, replaces or patches an object
owns what that changed, and takes it from all others; what a status or the defaults of a kind hold has no owner here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.patch import clone, merge_key
from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.local.apiserver.strategy import now

Path = tuple[str, ...]
"""Steps as ``fieldsV1`` spells them: ``f:name`` for a field, ``k:{...}`` for the element of a keyed list."""

_OWNED_METADATA = {
    (f"f:{name}",) for name in ("annotations", "finalizers", "generateName", "labels", "ownerReferences")
}
_OWN = {("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace")}


def apply_configuration(
    resource: ResourceType, old: Object | None, wanted: Object, manager: str, *, force: bool, subresource: str = ""
) -> Object:
    """Return `old` with `wanted` applied by `manager`.

    Raises:
      StatusError: 409, another manager owns a field that is to get another value, and `force` is not set.
    """
    wanted = clone(wanted)
    wanted.get("metadata", {}).pop("managedFields", None)
    mine = {path for path in _leaves(wanted, ()) if path not in _OWN}
    current: Object = old if old is not None else {}
    entries = list(current.get("metadata", {}).get("managedFields") or ())
    others = [each for each in entries if not _is(each, manager, subresource)]
    before = next(
        (set(_paths(each.get("fieldsV1") or {})) for each in entries if _is(each, manager, subresource)), set()
    )
    owned = {id(each): set(_paths(each.get("fieldsV1") or {})) for each in others}
    conflicts = [
        (str(each.get("manager")), path)
        for each in others
        for path in sorted(mine & owned[id(each)])
        if _at(current, path) != _at(wanted, path)
    ]
    if conflicts and not force:
        raise _conflict(conflicts)
    result: Object = clone(current)
    kept = set().union(*owned.values()) if owned else set()
    for path in sorted(before - mine - kept, key=lambda path: (-len(path), _names_element(path))):
        _drop(result, path)
    result = _merged(result, wanted, "")
    if conflicts:
        taken = {path for _, path in conflicts}
        others = [{**each, "fieldsV1": _tree(owned[id(each)] - taken)} for each in others]
    own = _entry(resource, manager, "Apply", mine, subresource)
    unchanged = next((each for each in entries if {**each, "time": ""} == {**own, "time": ""}), own)
    managers = [*(each for each in others if each["fieldsV1"]), unchanged]
    result.setdefault("metadata", {})["managedFields"] = sorted(managers, key=_order)
    return result


def note_update(
    resource: ResourceType, old: Object | None, new: Object, manager: str, *, subresource: str = ""
) -> None:
    """Give the fields in which `new` differs from `old` to `manager`, in ``metadata.managedFields``, in place."""
    before: Object = old if old is not None else {}
    fields = {path for path in _leaves(new, ()) if _is_owned(path, subresource)}
    written = {path for path in fields if _at(before, path) != _at(new, path)}
    managers, mine, unchanged = [], set(written), []
    for entry in before.get("metadata", {}).get("managedFields") or ():
        owned = set(_paths(entry.get("fieldsV1") or {}))
        left = {path for path in owned - written if _at(new, path) is not None or path[0] == "f:status"}
        if _is(entry, manager, subresource, "Update"):
            mine |= left
            unchanged.append(entry)
        elif left:
            managers.append(entry if left == owned else {**entry, "fieldsV1": _tree(left)})
    managers += [_entry(resource, manager, "Update", mine, subresource)] if written else unchanged
    new["metadata"].pop("managedFields", None)
    if managers:
        new["metadata"]["managedFields"] = sorted(managers, key=_order)


def _is_owned(path: Path, subresource: str) -> bool:
    if subresource or path[0] == "f:status":
        return path[0] == f"f:{subresource}"
    return path not in _OWN and (path[0] != "f:metadata" or path[1:2] in _OWNED_METADATA)


def _entry(resource: ResourceType, manager: str, operation: str, fields: set[Path], subresource: str) -> Object:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": resource.api_version,
        "time": now(),
        "fieldsType": "FieldsV1",
        "fieldsV1": _tree(fields),
        **({"subresource": subresource} if subresource else {}),
    }


def _order(entry: Object) -> tuple[str, str, str]:
    """A fixed order, so that a write that changes nothing makes no new version."""
    return str(entry.get("operation")), str(entry.get("manager")), str(entry.get("subresource", ""))


def _is(entry: Object, manager: str, subresource: str, operation: str = "Apply") -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == operation
        and entry.get("subresource", "") == subresource
    )


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, (*path, f"f:{key}"))
        return
    field = path[-1][2:] if path and path[-1].startswith("f:") else ""
    key = merge_key(field, value) if isinstance(value, list) else None
    if key is None:
        yield path
        return
    for each in value:
        yield from _leaves(each, (*path, f"k:{json.dumps({key: each[key]}, separators=(',', ':'))}"))


def _paths(tree: Object, path: Path = ()) -> Iterator[Path]:
    for key, inner in tree.items():
        if key == ".":
            continue
        if inner:
            yield from _paths(inner, (*path, key))
        else:
            yield (*path, key)


def _tree(paths: set[Path]) -> Object:
    tree: Object = {}
    for path in sorted(paths):
        place = tree
        for step in path:
            place = place.setdefault(step, {})
    return tree


def _step(value: Any, step: str) -> Any:
    if step.startswith("f:"):
        return value.get(step[2:]) if isinstance(value, dict) else None
    wanted = json.loads(step[2:])
    if not isinstance(value, list):
        return None
    return next((each for each in value if isinstance(each, dict) and wanted.items() <= each.items()), None)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = _step(value, step)
    return value


def _drop(obj: Any, path: Path) -> None:
    """Remove a field, and the parents that become empty."""
    parent = _at(obj, path[:-1])
    step = path[-1]
    if _names_element(path):
        pass
    elif step.startswith("f:") and isinstance(parent, dict):
        parent.pop(step[2:], None)
    elif isinstance(parent, list):
        found = _step(parent, step)
        if found is not None:
            parent.remove(found)
    if len(path) > 1 and (_is_empty(parent, path)):
        _drop(obj, path[:-1])


def _names_element(path: Path) -> bool:
    """Whether a field is the merge key of a list's element: it is removed last, together with the element."""
    return len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in json.loads(path[-2][2:])


def _is_empty(parent: Any, path: Path) -> bool:
    if path[-2].startswith("k:") and isinstance(parent, dict):
        return set(parent) <= set(json.loads(path[-2][2:]))
    return parent in ({}, [])


def _merged(old: Any, new: Any, field: str) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _merged(old.get(key), value, key) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        key = merge_key(field, old, new)
        if key is not None:
            by_key = {json.dumps(each[key]): each for each in old}
            for each in new:
                name = json.dumps(each[key])
                by_key[name] = _merged(by_key.get(name), each, "")
            return list(by_key.values())
    return new


def _conflict(conflicts: list[tuple[str, Path]]) -> StatusError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{manager}"',
            "field": "".join(f".{step[2:]}" if step.startswith("f:") else f"[{step[2:]}]" for step in path),
        }
        for manager, path in conflicts
    ]
    count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    text = "; ".join(f"{each['message']}: {each['field']}" for each in causes)
    return StatusError(f"Apply failed with {count}: {text}", status=409, reason="Conflict", details={"causes": causes})
