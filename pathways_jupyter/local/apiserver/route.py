"""A request's verb, resource, namespace and name, and its options: selectors, dry run, how to delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from pathways_jupyter.local.apiserver import bodies
from pathways_jupyter.local.apiserver.api_discovery import SUBRESOURCES
from pathways_jupyter.local.apiserver.api_errors import bad_request, method_not_allowed, no_such_resource
from pathways_jupyter.local.apiserver.resources import NAMESPACES, Registry, ResourceType
from pathways_jupyter.local.apiserver.selectors import Test, field_test, label_test

_ONE = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANY = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
CONNECTS = frozenset({"exec", "portforward"})
"""Subresources whose answer is a connection."""
_VERBS = {"status": ["get", "update", "patch"]} | {name: verbs for name, (_, verbs, _) in SUBRESOURCES.items()}
"""Those of subresources."""
_TRUE = {"1", "true", "True", "t", "TRUE"}


@dataclass(frozen=True)
class ObjectRequest:
    """One request for objects."""

    verb: str
    resource: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def target(self) -> str:
        """``pods/log``, as in RBAC rules."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    @property
    def home(self) -> str:
        """The namespace in the store; for RBAC, a request for a namespace is one inside that namespace."""
        return self.namespace if self.resource.namespaced else ""


def find_route(registry: Registry, method: str, path: str, query: Mapping[str, str]) -> ObjectRequest | None:
    """Return the route of a request, or None when its path is not one of objects.

    Raises:
      StatusError: 404, no such resource; 405, the resource has no such verb.
    """
    parts = path.strip("/").split("/")
    if len(parts) > 2 and parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif len(parts) > 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if any(part in ("", ".", "..") for part in rest):
        raise no_such_resource()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (len(rest) > 3 or registry.find(group, version, rest[2])):
        # Not a subresource of the namespace itself.
        namespace, rest = rest[1], rest[2:]
    resource = registry.find(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise no_such_resource()
    name, subresource = (*rest[1:], "", "")[:2]
    if resource.key == NAMESPACES.key and name:
        namespace = name
    if subresource and method == "POST":
        verb: str | None = "create"
    else:
        verb = (_ONE if name else _MANY).get(method)
    if verb is None:
        raise method_not_allowed()
    if verb == "list" and flag(query, "watch"):
        verb = "watch"
    if subresource:
        if subresource not in resource.subresources and not (subresource == "status" and resource.has_status):
            raise no_such_resource()
        if verb not in _VERBS[subresource]:
            raise method_not_allowed()
    elif verb == "deletecollection" and resource.key == NAMESPACES.key:
        raise method_not_allowed()
    elif resource.namespaced and not namespace and verb not in ("list", "watch", "deletecollection"):
        raise method_not_allowed() if verb == "create" else no_such_resource()
    return ObjectRequest(verb, resource, namespace, name, subresource)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return whether the query sets `name` to true."""
    return query.get(name, "") in _TRUE


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a whole number of at least 0 from the query, or None when it is not given.

    Raises:
      StatusError: 400, it is something else.
    """
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise bad_request(f'{name}: Invalid value: "{text}": must be a whole number of at least 0')
    return int(text)


def read_revision(text: str) -> int | None:
    """Return a resourceVersion from a query; None for "whatever there is now".

    Raises:
      StatusError: 400, it is not one that this server gave out.
    """
    if text in ("", "0"):
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        why = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f'resourceVersion: Invalid value: "{text}": {why}')
    return int(text)


_DELETE_OPTIONS = {
    "gracePeriodSeconds": int,
    "propagationPolicy": str,
    "preconditions": dict,
    "dryRun": list,
}


def selection(request: web.BaseRequest, resource: ResourceType) -> Test | None:
    """Return the test of a request's selectors, or None.

    Raises:
      StatusError: 400.
    """
    labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
    tests = [label_test(labels)] if labels else []
    if fields:
        tests.append(field_test(fields, resource))
    return (lambda obj: all(test(obj) for test in tests)) if tests else None


def is_dry_run(request: web.BaseRequest) -> bool:
    """Return whether the request is a dry run.

    Raises:
      StatusError: 400, the query asks for a kind of dry run that does not exist.
    """
    values = request.query.getall("dryRun", [])
    if any(value != "All" for value in values):
        raise bad_request(f'dryRun: Unsupported value: "{values[0]}": supported values: "All"')
    return bool(values)


async def read_deletion(request: web.BaseRequest) -> dict[str, Any]:
    """Read the delete options, as keywords of :meth:`Store.delete`; the query takes precedence over the body.

    Raises:
      StatusError: 400.
    """
    body = await bodies.read_object(request, optional=True)
    # Bodies of this kind are not in the table of schemas, since no object has that kind.
    for field, kind in _DELETE_OPTIONS.items():
        value = body.get(field)
        if value is not None and type(value) is not kind:
            raise bad_request(f"{field} of the delete options has a value of the wrong type")
    grace = number(request.query, "gracePeriodSeconds")
    if grace is None:
        grace = body.get("gracePeriodSeconds")
    propagation = request.query.get("propagationPolicy") or body.get("propagationPolicy") or ""
    if (grace is not None and grace < 0) or propagation not in ("", "Orphan", "Background", "Foreground"):
        raise bad_request("these delete options are not valid")
    preconditions = body.get("preconditions") or {}
    return {
        "grace": grace,
        "propagation": propagation,
        "uid": str(preconditions.get("uid") or ""),
        "revision": str(preconditions.get("resourceVersion") or ""),
        "dry_run": is_dry_run(request) or body.get("dryRun") == ["All"],
    }
