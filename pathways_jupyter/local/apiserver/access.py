"""Users, their tokens and their permissions: by roles and bindings in the store (RBAC), or by rules of a token.

The reviews (``kubectl auth can-i``) ask for the same permissions.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter.local.apiserver.api_discovery import REVIEWS
from pathways_jupyter.local.apiserver.api_errors import StatusError, bad_request
from pathways_jupyter.local.apiserver.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Object,
    ResourceType,
)
from pathways_jupyter.local.apiserver.route import ObjectRequest
from pathways_jupyter.local.apiserver.store import Store

Rule = Mapping[str, Any]
"""As in RBAC: ``apiGroups``, ``resources``, ``verbs``, ``resourceNames``, ``nonResourceURLs``; ``namespaces`` limits it
further. ``*`` stands for all, and so does a missing ``resourceNames`` or ``namespaces``."""

REVIEW_PATHS = {
    f"/apis/{group}/{version}/{plural}": ObjectRequest(
        "create", ResourceType(group, version, kind, plural, namespaced=False)
    )
    for group, version, kind, plural in REVIEWS
}
"""The reviews that can be posted, by path."""
HEALTH = ("/healthz", "/livez", "/readyz")
_DISCOVERY = {"nonResourceURLs": ["/api*", "/openapi*", "/version", *HEALTH], "verbs": ["get"]}
SERVICE_ACCOUNTS = "system:serviceaccounts"
"""The group of pods, whose requests do not keep a cluster alive."""
_ACCOUNT_PREFIX = "system:serviceaccount:"
_EVERYTHING: Sequence[Rule] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)


@dataclass(frozen=True)
class Question:
    """A permission to check: a verb on a resource or a path."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource: ``pods/log``. Empty for a question about `path`."""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True)
class User:
    """The bearer of a token."""

    name: str
    rules: Sequence[Rule]
    groups: tuple[str, ...] = ("system:authenticated",)
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


ANONYMOUS = User(
    "system:anonymous",
    ({"nonResourceURLs": [*HEALTH, "/version"], "verbs": ["get"]},),
    ("system:unauthenticated",),
)
"""The sender of a request without a token."""


class Users:
    """The tokens and their bearers, for as long as the cluster runs."""

    def __init__(self) -> None:
        self._tokens: dict[str, User] = {}

    def add(
        self,
        name: str,
        rules: Sequence[Rule] | None = None,
        groups: Sequence[str] = (),
        extra: Mapping[str, Sequence[str]] | None = None,
    ) -> str:
        """Create a token for `name`, or return the existing one for the same arguments.

        Args:
          rules: What its bearer may do, in RBAC's terms; None for everything.
          groups: What groups its bearer is in.
          extra: What else is known of its bearer, e.g. the pod that the token belongs to.
        """
        user = User(name, _EVERYTHING if rules is None else rules, (*groups, "system:authenticated"), extra or {})
        for token, existing in self._tokens.items():
            if existing == user:
                return token
        token = secrets.token_urlsafe(32)
        self._tokens[token] = user
        return token

    def add_account(self, namespace: str, account: str, extra: Mapping[str, Sequence[str]]) -> str:
        """Return a token for a service account; what it may do beyond discovery comes from roles and their bindings."""
        groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")
        return self.add(f"{_ACCOUNT_PREFIX}{namespace}:{account}", [_DISCOVERY], groups, extra)

    def revoke(self, key: str, value: str) -> None:
        """Revoke every token whose `extra` has `value` under `key`."""
        self._tokens = {token: user for token, user in self._tokens.items() if value not in user.extra.get(key, ())}

    def authenticate(self, authorization: str) -> User | None:
        """Return the user behind an ``Authorization`` header; None for a token that is not valid."""
        scheme, _, token = authorization.partition(" ")
        return self._tokens.get(token.strip()) if scheme.lower() == "bearer" else ANONYMOUS


def may(store: Store, user: User, question: Question) -> bool:
    """Return whether a rule of the user's token, or one that a binding in the cluster grants, allows it."""
    return any(_allows(rule, question) for rule in itertools.chain(user.rules, _bound_rules(store, user)))


def refusal(user: User, route: ObjectRequest, verb: str) -> StatusError:
    """Return the 403, in the words of a real API server."""
    resource = route.resource
    where = f'in the namespace "{route.namespace}"' if route.namespace else "at the cluster scope"
    subject = f'{resource.qualified} "{route.name}"' if route.name else resource.qualified
    return StatusError(
        403,
        f'{subject} is forbidden: User "{user.name}" cannot {verb} resource "{route.target}"'
        f' in API group "{resource.group}" {where}',
        resource,
        route.name,
    )


def answer_review(route: ObjectRequest, user: User, review: Object, store: Store) -> Object:
    """Return the review of the user who posted it, with its ``status`` filled in.

    Raises:
      StatusError: 400, the question makes no sense.
    """
    metadata, spec = review.get("metadata"), review.get("spec") or {}
    if not isinstance(metadata or {}, dict) or not isinstance(spec, dict):
        raise bad_request("metadata and spec must be objects")
    head = {"kind": route.resource.kind, "apiVersion": route.resource.api_version, "metadata": metadata or {}}
    if route.resource.kind == "SelfSubjectReview":
        extra = {"extra": {key: list(values) for key, values in user.extra.items()}} if user.extra else {}
        return {**head, "status": {"userInfo": {"username": user.name, "groups": list(user.groups), **extra}}}
    allowed = may(store, user, _question(spec))
    reason = "a rule of this token allows it" if allowed else "no rule of this token does"
    return {**head, "spec": spec, "status": {"allowed": allowed, "reason": reason}}


def _allows(rule: Rule, question: Question) -> bool:
    """Return whether a rule grants a permission."""

    def has(field: str, value: str) -> bool:
        values = rule.get(field) or ()
        return "*" in values or value in values

    if not has("verbs", question.verb):
        return False
    if not question.resource:
        return has("nonResourceURLs", question.path) or any(
            pattern.endswith("*") and question.path.startswith(pattern[:-1])
            for pattern in rule.get("nonResourceURLs") or ()
        )
    _, slash, subresource = question.resource.partition("/")
    return (
        has("apiGroups", question.group)
        and (has("resources", question.resource) or bool(slash and has("resources", f"*/{subresource}")))
        and (not rule.get("resourceNames") or question.name in rule["resourceNames"])
        and (not rule.get("namespaces") or has("namespaces", question.namespace))
    )


def _question(spec: Object) -> Question:
    attributes, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if isinstance(attributes, dict) and not path:
        texts = {key: str(value) for key, value in attributes.items()}
        resource = texts.get("resource", "")
        if texts.get("subresource"):
            resource = f"{resource}/{texts['subresource']}"
        return Question(
            texts.get("verb", ""), texts.get("group", ""), resource, texts.get("namespace", ""), texts.get("name", "")
        )
    if isinstance(path, dict) and not attributes:
        return Question(str(path.get("verb", "")), path=str(path.get("path", "")))
    raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")


def _bound_rules(store: Store, user: User) -> Iterator[Rule]:
    for kind in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
        for binding in store.list(kind):
            if not any(_is_user(subject, user) for subject in binding.get("subjects") or ()):
                continue
            namespace, role = binding["metadata"].get("namespace", ""), binding["roleRef"]
            local = role["kind"] == "Role"
            role_object = store.find(ROLES if local else CLUSTER_ROLES, namespace if local else "", role["name"]) or {}
            for rule in role_object.get("rules") or ():
                if not namespace:
                    yield rule
                elif rule.get("resources"):
                    yield {**rule, "namespaces": [namespace]}


def _is_user(subject: Object, user: User) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "ServiceAccount":
        return user.name == f"{_ACCOUNT_PREFIX}{subject.get('namespace', '')}:{name}"
    return name == user.name if kind == "User" else kind == "Group" and name in user.groups
