"""Access reviews (``kubectl auth can-i``, ``whoami``): questions about permissions, posted as objects."""

from __future__ import annotations

from typing import Any

from pathways_jupyter.local.apiserver.api_discovery import REVIEWS
from pathways_jupyter.local.apiserver.api_errors import bad_request
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.users import Question, User

_PATHS = {f"/apis/{group}/{version}/{plural}": kind for group, version, kind, plural in REVIEWS}


def review_at(path: str) -> str:
    """The kind of review that is posted to `path`; empty when `path` is not one of a review."""
    return _PATHS.get(path.rstrip("/"), "")


def answer_review(kind: str, user: User, asked: Object) -> Object:
    """The review with its ``status`` filled in.

    Raises:
      StatusError: 400, the question makes no sense.
    """
    group = "authentication.k8s.io" if kind == "SelfSubjectReview" else "authorization.k8s.io"
    spec = asked.get("spec") or {}
    if not isinstance(spec, dict):
        raise bad_request("spec must be an object")
    metadata = asked.get("metadata") if isinstance(asked.get("metadata"), dict) else {}
    return {
        "kind": kind,
        "apiVersion": f"{group}/v1",
        "metadata": metadata,
        **({"spec": spec} if kind != "SelfSubjectReview" else {}),
        "status": _status(kind, user, spec),
    }


def _status(kind: str, user: User, spec: dict[str, Any]) -> dict[str, Any]:
    if kind == "SelfSubjectReview":
        own = {"uid": user.uid, "extra": {key: list(values) for key, values in user.extra.items()}}
        given = {key: value for key, value in own.items() if value}
        return {"userInfo": {"username": user.name, "groups": list(user.groups), **given}}
    if kind == "SelfSubjectRulesReview":
        return _rules(user, str(spec.get("namespace", "")))
    if kind == "SubjectAccessReview" and spec.get("user") != user.name:
        raise bad_request("a review can only be about the user that posts it")
    allowed = user.may(_question(spec))
    return {"allowed": allowed, "reason": "a rule of this token allows it" if allowed else "no rule of this token does"}


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
