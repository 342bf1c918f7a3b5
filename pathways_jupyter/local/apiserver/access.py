"""Permissions by roles and bindings in the store (RBAC), and the reviews (``kubectl auth can-i``) that ask for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

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
from pathways_jupyter.local.apiserver.users import SERVICE_ACCOUNT_PREFIX, Question, Rule, User, allows

REVIEW_PATHS = {
    f"/apis/{group}/{version}/{plural}": ObjectRequest(
        "create", ResourceType(group, version, kind, plural, namespaced=False)
    )
    for group, version, kind, plural in REVIEWS
}
"""The reviews that can be posted, by path."""


def may(store: Store, user: User, question: Question) -> bool:
    """Return whether a rule of the user's token, or one that a binding in the cluster grants, allows it."""
    return any(allows(rule, question) for rule in itertools.chain(user.rules, _bound_rules(store, user)))


def refusal(user: User, route: ObjectRequest, verb: str) -> StatusError:
    """403, in the words of a real API server."""
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


def _question(spec: Object) -> Question:
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if isinstance(about, dict) and not path:
        texts = {key: str(value) for key, value in about.items()}
        resource = texts.get("resource", "")
        if texts.get("subresource"):
            resource = f"{resource}/{texts['subresource']}"
        return Question(
            texts.get("verb", ""), texts.get("group", ""), resource, texts.get("namespace", ""), texts.get("name", "")
        )
    if isinstance(path, dict) and not about:
        return Question(str(path.get("verb", "")), path=str(path.get("path", "")))
    raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")


def _bound_rules(store: Store, user: User) -> Iterator[Rule]:
    for kind in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
        for binding in store.list(kind):
            if not any(_is_user(subject, user) for subject in binding.get("subjects") or ()):
                continue
            namespace, role = binding["metadata"].get("namespace", ""), binding["roleRef"]
            local = role["kind"] == "Role"
            found = store.find(ROLES if local else CLUSTER_ROLES, namespace if local else "", role["name"]) or {}
            for rule in found.get("rules") or ():
                if not namespace:
                    yield rule
                elif rule.get("resources"):
                    yield {**rule, "namespaces": [namespace]}


def _is_user(subject: Object, user: User) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "ServiceAccount":
        return user.name == f"{SERVICE_ACCOUNT_PREFIX}{subject.get('namespace', '')}:{name}"
    return name == user.name if kind == "User" else kind == "Group" and name in user.groups
