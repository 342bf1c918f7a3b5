"""Kubernetes objects: the path of each kind, and the verbs.

An object is the plain JSON from the API server. Typed models take more than a second to import, and would have to be
converted back to JSON for the browser.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pathways_jupyter.base.errors import ApiError, ConfigError, ConnectionLost
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube.client import PATIENCE_SECONDS, Client
from pathways_jupyter.kube.credentials import parse_time

Object = dict[str, Any]

PAGE = 500
"""Objects per page of a list, as kubectl does it."""
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class Resource:
    """A kind of objects.

    Attributes:
      group: API group; empty for the core group.
      plural: Its name in paths, e.g. ``pods``.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects, e.g. ``batch/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection (of all namespaces when `namespace` is empty), an object, or a subresource.

        Raises:
          ConfigError: `namespace` or `name` cannot be the name of an object.
        """
        parts = ["apis", self.group] if self.group else ["api"]
        parts.append(self.version)
        if self.namespaced and namespace:
            parts += ["namespaces", _segment(namespace, "a namespace")]
        parts += [self.plural, _segment(name, f"a {self.kind}"), subresource]
        return "/" + "/".join(part for part in parts if part)

    def item(self, namespace: str, name: str, subresource: str = "") -> str:
        """Return the path of one object; unlike :meth:`path`, never that of the collection.

        Raises:
          ConfigError: `name` is empty, or cannot be the name of an object.
        """
        if not name:
            # Without the name it would be the path of the collection, and DELETE would delete the whole namespace's.
            raise ConfigError(f"The name of a {self.kind} is empty.", hint="Pass its name.")
        return self.path(namespace, name, subresource)


PODS = Resource("", "v1", "pods", "Pod")
JOBS = Resource("batch", "v1", "jobs", "Job")
EVENTS = Resource("", "v1", "events", "Event")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
PATHWAYS_JOBS = Resource("pathways-job.pathways.domain", "v1", "pathwaysjobs", "PathwaysJob")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SECRETS = Resource("", "v1", "secrets", "Secret")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


@dataclass(frozen=True)
class Listing:
    """A consistent list of objects; a watch can continue from its `resource_version`."""

    items: tuple[Object, ...]
    resource_version: str


@dataclass(frozen=True)
class Page:
    """A part of a list.

    Attributes:
      is_first: Whether a new list begins here.
      rest: What the server wants to see for the next page; empty for the last one.
    """

    items: tuple[Object, ...]
    resource_version: str
    is_first: bool
    rest: str


async def create(client: Client, resource: Resource, body: Object, *, namespace: str = "") -> Object:
    """Create an object, and return it as the server stored it.

    When the answer is lost, creating is tried again: if the name is taken then, an earlier attempt has succeeded,
    unless by an object that is being deleted, or has other owners.

    Raises:
      ApiError: It exists already (409), is invalid (422), or creating it is forbidden (403).
      ClusterError: The server could not be reached.
    """
    namespace = namespace or str(body["metadata"].get("namespace") or "")
    path = resource.path(namespace)
    name = str(body["metadata"].get("name") or "")
    attempts = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=PATIENCE_SECONDS)
    async for attempt in attempts:
        try:
            return await client.post(path, body)
        except ConnectionLost:
            if not name or attempts.is_over:
                raise
        except ApiError as error:
            if error.status != 409 or not attempt:
                raise
            present = await find(client, resource, name, namespace=namespace)
            if present is None or present["metadata"].get("deletionTimestamp") or _owners(present) != _owners(body):
                raise
            return present
    raise AssertionError("the last attempt raises")


async def get(client: Client, resource: Resource, name: str, *, namespace: str = "") -> Object:
    """Return an object.

    Raises:
      ApiError: There is none (404), or reading it is forbidden (403).
      ClusterError: The server could not be reached.
    """
    return await client.get(resource.item(namespace, name))


async def find(client: Client, resource: Resource, name: str, *, namespace: str = "") -> Object | None:
    """Like :func:`get`; None where there is no such object."""
    try:
        return await get(client, resource, name, namespace=namespace)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def list_(
    client: Client, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
) -> Listing:
    """Return all objects of a namespace (or of all namespaces), in pages.

    Args:
      labels: A label selector, e.g. ``app=x,tier in (a,b)``.
      fields: A field selector, e.g. ``type=Warning``.

    Raises:
      ApiError: The kind does not exist (404), or listing is forbidden (403).
      ClusterError: The server could not be reached.
    """
    items: list[Object] = []
    version = ""
    listing = pages(client, resource, namespace=namespace, labels=labels, fields=fields)
    async with contextlib.aclosing(listing):
        async for page in listing:
            items = [*(() if page.is_first else items), *page.items]
            version = page.resource_version
    return Listing(tuple(items), version)


async def list_if_allowed(
    client: Client, resource: Resource, *, namespace: str = "", labels: str = ""
) -> tuple[Object, ...]:
    """Return all objects like :func:`list_`; none where listing them is forbidden."""
    try:
        return (await list_(client, resource, namespace=namespace, labels=labels)).items
    except ApiError as error:
        if error.status != 403:
            raise
        return ()


async def pages(
    client: Client, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
) -> AsyncGenerator[Page, None]:
    """Yield all objects like :func:`list_`, page by page, so that not all of them need to be in memory at once.

    A page that is the first one begins a new list, in which the pages before it have no part.

    Args:
      fields: A field selector, e.g. ``metadata.name=x``.

    Raises:
      ApiError: The kind does not exist (404), or listing is forbidden (403).
      ClusterError: The server could not be reached.
    """
    selectors = selection(labels, fields)
    path = resource.path(namespace)
    for _ in range(2):
        query, is_first = {**selectors, "limit": str(PAGE)}, True
        try:
            while True:
                page = _page(resource, await client.get(path, query=query), is_first=is_first)
                yield page
                if not page.rest:
                    return
                query["continue"], is_first = page.rest, False
        except ApiError as error:
            # 410 Gone: the server keeps the snapshot behind the pages for some minutes only. Start again.
            if error.status != 410:
                raise
    # Paging failed twice, so get everything in one answer.
    yield _page(resource, await client.get(path, query=selectors), is_first=True)


async def patch(client: Client, resource: Resource, name: str, body: Object, *, namespace: str = "") -> Object:
    """Change parts of an object with a JSON merge patch, and return all of it.

    Raises:
      ApiError: There is none (404), or `body` has an outdated ``resourceVersion`` (409).
      ClusterError: The server could not be reached.
    """
    path = resource.item(namespace, name)
    return await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")


async def delete(
    client: Client,
    resource: Resource,
    name: str,
    *,
    namespace: str = "",
    grace_seconds: int | None = None,
    uid: str = "",
    resource_version: str = "",
) -> bool:
    """Delete an object, and in the background what it owns; False when it did not exist any more.

    Args:
      uid: Delete only the object with this uid, not a new one of the same name.
      resource_version: Delete only if the object has not changed since.

    Raises:
      ApiError: `uid` or `resource_version` does not match (409), or deleting is forbidden (403).
      ClusterError: The server could not be reached.
    """
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    # Checked by the API server, because the object may change between our read and this request.
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    if stated := {key: value for key, value in preconditions.items() if value}:
        options["preconditions"] = stated
    try:
        await client.delete(resource.item(namespace, name), body=options)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


async def allowed(client: Client, verb: str, resource: Resource, *, namespace: str = "", subresource: str = "") -> bool:
    """Return whether these credentials may `verb` `resource`, according to a SelfSubjectAccessReview.

    Raises:
      ApiError: The server does not support access reviews.
      ClusterError: The server could not be reached.
    """
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    if subresource:
        attributes["subresource"] = subresource
    review = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", ACCESS_REVIEWS.path(), body=review, repeat=True)
    return bool((answer.get("status") or {}).get("allowed"))


def selection(labels: str, fields: str) -> dict[str, str]:
    """Return the query parameters of a label and a field selector."""
    return {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}


def true_condition(item: Mapping[str, Any], *types: str) -> Mapping[str, Any] | None:
    """Return the first condition in an object's status that is of one of these types and true."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") in types and each.get("status") == "True"), None)


def created(item: Mapping[str, Any]) -> float:
    """Return when an object was created, in seconds since the epoch; 0 if it does not say."""
    return parse_time(str(item["metadata"].get("creationTimestamp") or "1970-01-01T00:00:00Z"))


def newest(items: Iterable[Object]) -> Object | None:
    """Return the object that was created last; None if there is none."""
    return max(items, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""), default=None)


def owner(body: Object, *, controller: bool = False) -> Object:
    """Return an ownerReference to an object that the server has created."""
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": body["metadata"]["name"],
        "uid": body["metadata"]["uid"],
        "controller": controller,
        "blockOwnerDeletion": False,
    }


def _owners(body: Object) -> set[str]:
    return {str(each.get("uid")) for each in body["metadata"].get("ownerReferences") or ()}


def restricted(**more: Any) -> Object:
    """Return a container's securityContext with which Pod Security's profile ``restricted`` admits it, and `more`."""
    return {
        **more,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _segment(name: str, what: str) -> str:
    """Return `name` as one segment of a path.

    Quoting alone is not enough: servers decode a path before they split it, so a quoted slash still separates, and
    quoted dots are still resolved. No object can have such a name, so reject it here, as kubectl and client-go do.
    """
    if name in {".", ".."} or "/" in name or "%" in name:
        raise ConfigError(
            f"{name!r} cannot be the name of {what}.", hint='A name contains no "/" and no "%", and is not "." or "..".'
        )
    return quote(name, safe="")


def _page(resource: Resource, answer: Mapping[str, Any], *, is_first: bool) -> Page:
    items, metadata = answer.get("items") or (), answer.get("metadata") or {}
    for item in items:
        # Lists carry these two once, not in each item.
        item.setdefault("apiVersion", resource.api_version)
        item.setdefault("kind", resource.kind)
    version, rest = str(metadata.get("resourceVersion") or ""), str(metadata.get("continue") or "")
    return Page(tuple(items), version, is_first, rest)
