"""Errors of failed requests: which verb on which resource failed, why, and what to do about it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.sentences import say

UPGRADE = "UPGRADE"
"""Method of a WebSocket request: sent as a GET, which Kubernetes authorizes as a `get` and a `create`."""

_UPGRADED = {"pods/attach", "pods/exec", "pods/portforward"}
_DENIED = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')
_WITHOUT_ROLES = re.compile(r"RBAC: .*not found", re.DOTALL)
_SILENT: Mapping[type[BaseException], str] = {
    ConnectionResetError: "the connection was reset",
    ConnectionAbortedError: "the connection was aborted",
    BrokenPipeError: "the connection was closed",
    EOFError: "the connection was closed",
}
_OTHER_NAME = (
    "The certificate of {server} is for another name: {reason}.",
    "Check the server's address in the kubeconfig, and its tls-server-name.",
)
# By OpenSSL's number of the error; any other one is an authority that is not the kubeconfig's.
_CERTIFICATES: Mapping[int, tuple[str, str]] = {
    9: ("The certificate of {server} is not valid yet.", "Check this computer's clock."),
    10: ("The certificate of {server} has expired.", "The cluster's administrator has to renew it."),
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}


class Unreachable(ClusterError):
    """Connecting to the API server failed; nothing was sent."""


class ConnectionLost(ClusterError):
    """The connection ended before the answer was complete; the server may or may not have acted on the request."""


@dataclass(frozen=True)
class Act:
    """What a request does, in the terms of Kubernetes' RBAC.

    Attributes:
      verb: As in RBAC rules, e.g. ``create``.
      resource: With its subresource, e.g. ``pods/log``; the path where it is not that of a resource.
    """

    verb: str
    group: str
    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        what = f"{self.resource} {self.name}" if self.name else self.resource
        return f"{self.verb} {what}{where}"


def act(method: str, path: str, query: Mapping[str, str] | None = None) -> Act:
    """Read what a request does from its method (or :data:`UPGRADE`), path and query."""
    parts = [unquote(part) for part in path.partition("?")[0].split("/") if part]
    group = ""
    if parts[:1] == ["api"]:
        parts = parts[2:]
    elif parts[:1] == ["apis"]:
        group, parts = (parts[1] if len(parts) > 1 else ""), parts[3:]
    else:
        return Act(method.lower(), "", path, "", "")
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    resource, name, subresource = [*parts, "", "", ""][:3]
    if subresource:
        resource = f"{resource}/{subresource}"
    verbs = {
        "POST": "create",
        "PUT": "update",
        "PATCH": "patch",
        "DELETE": "delete" if name else "deletecollection",
        UPGRADE: "get and create",
    }
    reading = "get" if name else "list"
    if method == "GET" and (query or {}).get("watch"):
        reading = "watch"
    return Act(verbs.get(method, reading), group, resource, namespace, name)


def refused(
    status: int, answer: Mapping[str, Any], *, method: str, path: str, query: Mapping[str, str] | None, hint: str
) -> ApiError:
    """Return the error for an answer with status 400 or above.

    Args:
      answer: The Status object, or an empty mapping when the body is not one.
      hint: The credentials' hint for when they are refused.
    """
    done = act(method, path, query)
    reason = str(answer.get("reason") or "")
    detail = str(answer.get("message") or f"HTTP {status}").strip()
    if status == 401:
        return ApiError(say("credentials-refused"), status=status, reason=reason, hint=hint)
    if status == 403:
        if denied := _DENIED.search(detail):
            # The message names the verb that is missing: for a WebSocket, one of two.
            done = replace(done, **denied.groupdict())
        return ApiError(
            say("forbidden", act=str(done), reason=detail),
            status=status,
            reason=reason,
            hint=_permission(done, detail),
        )
    if reason == "AlreadyExists":
        return ApiError(detail, status=status, reason=reason, hint=say("exists-hint"))
    hints = {
        404: say("not-found-hint"),
        409: say("conflict-hint"),
        422: say("invalid-hint"),
        429: say("overloaded-hint"),
    }
    return ApiError(detail, status=status, reason=reason, hint=hints.get(status, say("failed-hint")))


def is_without_roles(error: ApiError) -> bool:
    """Whether an API server refused because it could not find a role, as in its first second, when it has read none."""
    return error.status == 403 and _WITHOUT_ROLES.search(str(error)) is not None


def unreachable(error: BaseException, server: str) -> Unreachable:
    """Return the error for a connection that could not be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = (error.verify_message or str(error)).rstrip(".")
        if known := _CERTIFICATES.get(error.verify_code):
            return Unreachable(known[0].format(server=server, reason=reason), hint=known[1])
        return Unreachable(say("certificate-wrong", server=server, reason=reason), hint=say("certificate-hint"))
    if isinstance(error, ssl.SSLError):
        return Unreachable(
            say("tls-failed", server=server, reason=(error.reason or str(error)).replace("_", " ").lower()),
            hint=say("tls-hint"),
        )
    if isinstance(error, TimeoutError):
        what: str = say("no-answer")
    elif isinstance(error, ConnectionRefusedError):
        what = say("refused")
    else:
        # Many connection errors have no text.
        what = str(getattr(error, "strerror", None) or error) or _SILENT.get(type(error), type(error).__name__)
    return Unreachable(say("cluster-unreachable", server=server, reason=what), hint=say("cluster-unreachable-hint"))


def lost(problem: str) -> ConnectionLost:
    """Return the error for a WebSocket that did not end properly."""
    return ConnectionLost(say("connection-lost", reason=problem), hint=say("connection-lost-hint"))


def _permission(done: Act, detail: str) -> str:
    if "webhook" in detail or "exceeded quota" in detail:
        return say("policy-hint")
    # Name both verbs of a WebSocket: a user who lacks one probably lacks the other.
    verbs = ["get", "create"] if done.resource in _UPGRADED else [done.verb]
    kind, title = ("role", "Role") if done.namespace else ("clusterrole", "ClusterRole")
    resource, _, subresource = done.resource.partition("/")
    full = (f"{resource}.{done.group}" if done.group else resource) + (f"/{subresource}" if subresource else "")
    where = f" --namespace={done.namespace}" if done.namespace else ""
    command = f"kubectl create {kind} pathways-user --verb={','.join(verbs)} --resource={full}{where}"
    if len(verbs) > 1:
        return say("permissions-hint", kind=title, verb=verbs[0], other=verbs[1], resource=full, command=command)
    return say("permission-hint", kind=title, verb=verbs[0], resource=full, command=command)
