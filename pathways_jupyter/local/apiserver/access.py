"""Access and token reviews (``kubectl auth can-i``, ``whoami``): questions about users, posted as objects."""

from __future__ import annotations

from typing import Any

from pathways_jupyter.local.apiserver.api_discovery import REVIEWS
from pathways_jupyter.local.apiserver.api_errors import bad_request
from pathways_jupyter.local.apiserver.impersonation import assumed
from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.local.apiserver.route import Route
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.users import Question, User, Users, with_bound_rules

_PATHS = {
    f"/apis/{group}/{version}/{plural}": Route("create", ResourceType(group, version, kind, plural, namespaced=False))
    for group, version, kind, plural in REVIEWS
}


def review_at(path: str) -> Route | None:
    """The kind of review that is posted to `path`, or None."""
    return _PATHS.get(path.rstrip("/"))


def answer_review(route: Route, user: User, asked: Object, users: Users, store: Store) -> Object:
    """The review with its ``status`` filled in.

    Args:
      user: The user who asks.

    Raises:
      StatusError: 400, the question makes no sense.
    """
    kind = route.resource.kind
    spec, metadata = asked.get("spec") or {}, asked.get("metadata")
    if not isinstance(spec, dict):
        raise bad_request("spec must be an object")
    status: Object
    if kind == "SelfSubjectReview":
        status = {"userInfo": _info(user)}
    elif kind == "TokenReview":
        found = users.who(f"Bearer {spec.get('token') or ''}")
        status = {"user": {}, "error": "[invalid bearer token, unknown]"}
        if found is not None:
            status = {"authenticated": True, "user": _info(found), "audiences": list(spec.get("audiences") or ())}
    elif kind == "SelfSubjectRulesReview":
        status = _rules(with_bound_rules(store, user), str(spec.get("namespace", "")))
    else:
        if kind == "SubjectAccessReview":
            name, groups = str(spec.get("user") or ""), [str(each) for each in spec.get("groups") or ()]
            if not name and not groups:
                raise bad_request("at least one of user or group must be specified")
            user = assumed(name, groups, "", {}, users)
        allowed = with_bound_rules(store, user).may(_question(spec))
        reason = "a rule of this token allows it" if allowed else "no rule of this token does"
        status = {"allowed": allowed, "reason": reason}
    return {
        "kind": kind,
        "apiVersion": route.resource.api_version,
        "metadata": metadata if isinstance(metadata, dict) else {},
        **({"spec": spec} if kind != "SelfSubjectReview" else {}),
        "status": status,
    }


def _info(user: User) -> dict[str, Any]:
    own = {"uid": user.uid, "extra": {key: list(values) for key, values in user.extra.items()}}
    given = {key: value for key, value in own.items() if value}
    return {"username": user.name, "groups": list(user.groups), **given}


def _question(spec: dict[str, Any]) -> Question:
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


def _rules(user: User, namespace: str) -> dict[str, Any]:
    fields = ("verbs", "apiGroups", "resources", "resourceNames")
    here = [each for each in user.rules if not each.get("namespaces") or namespace in each["namespaces"]]
    return {
        "resourceRules": [
            {field: list(each[field]) for field in fields if each.get(field)} for each in here if each.get("resources")
        ],
        "nonResourceRules": [
            {"verbs": list(each["verbs"]), "nonResourceURLs": list(each["nonResourceURLs"])}
            for each in here
            if each.get("nonResourceURLs")
        ],
        "incomplete": False,
    }
