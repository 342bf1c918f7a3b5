"""Errors of failed requests: which verb on which resource failed, why, and what to do about it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from pathways_jupyter.base.errors import ApiError, ConnectionLost, Unreachable
from pathways_jupyter.base.sentences import advice

UPGRADE = "UPGRADE"
"""Method of a WebSocket request: sent as a GET, which Kubernetes authorizes as a `get` and a `create`."""

_UPGRADED = {"pods/attach", "pods/exec", "pods/portforward"}
_DENIED = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')
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


@dataclass(frozen=True)
class Act:
    """A request's verb and resource, in the terms of Kubernetes' RBAC.

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
        return ApiError("The API server does not accept these credentials.", status=status, reason=reason, hint=hint)
    if status == 403:
        if denied := _DENIED.search(detail):
            # The message names the verb that is missing: for a WebSocket, one of two.
            done = replace(done, **denied.groupdict())
        return ApiError(
            f"You are not allowed to {done}: {detail}",
            status=status,
            reason=reason,
            hint=_permission(done, detail),
        )
    if reason == "AlreadyExists":
        return ApiError(detail, status=status, reason=reason, hint="Choose another name, or delete that one first.")
    hints = {
        404: "Check the name and the namespace.",
        409: "The object was changed at the same time; read it again and retry.",
        422: "The API server rejected the object as invalid; the message names the field.",
        429: "The API server is overloaded; try again in a moment.",
    }
    # Only a server that failed may answer the same request otherwise a moment later.
    others = "Try again in a moment." if status >= 500 else "Correct what the message names, then try again."
    return ApiError(detail, status=status, reason=reason, hint=hints.get(status, others))


def unreachable(error: BaseException, server: str) -> Unreachable:
    """Return the error for a connection that could not be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = (error.verify_message or str(error)).rstrip(".")
        if certificate := _CERTIFICATES.get(error.verify_code):
            return Unreachable(certificate[0].format(server=server, reason=reason), hint=certificate[1])
        return Unreachable(
            f"The certificate of {server} does not match the kubeconfig: {reason}.",
            hint="Fetch the credentials of the cluster again: it may have been recreated.",
        )
    if isinstance(error, ssl.SSLError):
        return Unreachable(
            f"TLS with {server} failed: {(error.reason or str(error)).replace('_', ' ').lower()}.",
            hint="Check the server's address, and whether a proxy on the way intercepts TLS.",
        )
    if isinstance(error, TimeoutError):
        what: str = "it does not answer"
    elif isinstance(error, ConnectionRefusedError):
        what = "connection refused"
    else:
        # Many connection errors have no text.
        what = str(getattr(error, "strerror", None) or error) or _SILENT.get(type(error), type(error).__name__)
    made = Unreachable(
        f"The API server {server} cannot be reached: {what}.",
        hint="Check that the cluster is running, the context is right, and the network (VPN, private endpoint).",
    )
    made.may_pass = isinstance(error, ConnectionError)
    return made


def lost(problem: str) -> ConnectionLost:
    """Return the error for a WebSocket that did not end properly."""
    return ConnectionLost(f"The connection through the API server was lost: {problem}.", hint="Try again.")


def _permission(done: Act, detail: str) -> str:
    if "webhook" in detail or "exceeded quota" in detail:
        return "Denied by a policy of the cluster; ask your cluster administrator."
    # Name both verbs of a WebSocket: a user who lacks one probably lacks the other.
    verbs = ["get", "create"] if done.resource in _UPGRADED else [done.verb]
    resource, _, subresource = done.resource.partition("/")
    full = (f"{resource}.{done.group}" if done.group else resource) + (f"/{subresource}" if subresource else "")
    binding = (
        f"rolebinding NAME --role=ROLE --user=USER -n {done.namespace}"
        if done.namespace
        else "clusterrolebinding NAME --clusterrole=ROLE --user=USER"
    )
    return advice(
        "Ask a cluster administrator for {verbs} on {resource}: pathways-jupyter manifests roles prints the Roles, "
        "{doctor} names the one that you lack, and it grants nothing until it is bound (kubectl create {binding}).",
        verbs=" and ".join(verbs),
        resource=full,
        binding=binding,
    )
