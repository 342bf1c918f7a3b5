"""Users: tokens, and the rules that say what their bearers may do.

Roles and bindings in the store (RBAC) grant rules in addition to those of a token.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import StatusError, forbidden
from pathways_jupyter.local.apiserver.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Object,
)
from pathways_jupyter.local.apiserver.route import Route
from pathways_jupyter.local.apiserver.store import Store

Rule = Mapping[str, Any]
"""As in RBAC: ``apiGroups``, ``resources``, ``verbs``, ``resourceNames``, ``nonResourceURLs``; ``namespaces`` limits it
further. ``*`` stands for all, and so does a missing ``resourceNames`` or ``namespaces``."""

EVERYTHING: Sequence[Rule] = (
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
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)
    expires: float = math.inf
    """When the token ends to be valid, in seconds since the epoch."""

    def may(self, question: Question) -> bool:
        """Whether one of the user's rules allows it."""
        return any(_allows(rule, question) for rule in self.rules)


HEALTH = ("/healthz", "/livez", "/readyz")
ANONYMOUS = User(
    "system:anonymous",
    ({"nonResourceURLs": [*HEALTH, "/version"], "verbs": ["get"]},),
    ("system:unauthenticated",),
)
"""The sender of a request without a token."""


class Users:
    """The tokens, kept in a file that only their owner can read.

    Args:
      path: The file; made with mode 0600 when the first token is added.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._tokens = json.loads(path.read_text(encoding="utf-8"))
        self._users = {_digest(token): _user(entry) for token, entry in self._tokens.items()}

    def add(
        self,
        name: str,
        rules: Sequence[Rule] | None = None,
        groups: Sequence[str] = (),
        extra: Mapping[str, Sequence[str]] | None = None,
        expires: float | None = None,
    ) -> str:
        """Create a token for `name`, or return the existing one for the same arguments.

        Args:
          rules: What its bearer may do; None for everything.
          extra: What else is known of its bearer, e.g. the pod that the token belongs to.
          expires: When it ends to be valid, in seconds since the epoch; None for never.
        """
        entry = {
            "name": name,
            "rules": list(EVERYTHING if rules is None else rules),
            "groups": list(groups),
            "extra": {key: list(values) for key, values in (extra or {}).items()},
            **({"expires": expires} if expires is not None else {}),
        }
        for token, known in self._tokens.items():
            if known == entry:
                return token
        token = secrets.token_urlsafe(32)
        self._tokens[token] = entry
        self._users[_digest(token)] = _user(entry)
        self._write()
        return token

    def revoke(self, key: str, value: str) -> None:
        """Revoke every token whose `extra` has `value` under `key`."""
        found = [token for token, entry in self._tokens.items() if value in entry.get("extra", {}).get(key, ())]
        for token in found:
            del self._tokens[token]
            del self._users[_digest(token)]
        if found:
            self._write()

    def _write(self) -> None:
        draft = self._path.with_suffix(".draft")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(self._tokens, file)
        os.replace(draft, self._path)

    def who(self, authorization: str) -> User | None:
        """The user behind an ``Authorization`` header; None for a token that is not valid."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return ANONYMOUS
        user = self._users.get(_digest(token.strip()))
        return user if user is not None and time.time() < user.expires else None

    def rules_of(self, name: str) -> Sequence[Rule]:
        """Every rule that a token of the user called `name` was made with."""
        return tuple(rule for entry in self._tokens.values() if entry["name"] == name for rule in entry["rules"])


def question_of(route: Route, verb: str = "") -> Question:
    """The permission that `route` needs."""
    return Question(verb or route.verb, route.resource.group, route.target, route.namespace, route.name)


def refuse(user: User, route: Route, verb: str = "") -> StatusError:
    """403, in the words of a real API server."""
    resource = route.resource
    where = f'in the namespace "{route.namespace}"' if route.namespace else "at the cluster scope"
    subject = f'{resource.qualified} "{route.name}"' if route.name else resource.qualified
    return forbidden(
        f'{subject} is forbidden: User "{user.name}" cannot {verb or route.verb} resource "{route.target}"'
        f' in API group "{resource.group}" {where}',
        resource,
        route.name,
    )


def _allows(rule: Rule, question: Question) -> bool:
    if not _has(rule.get("verbs"), question.verb):
        return False
    if not question.resource:
        patterns = rule.get("nonResourceURLs") or ()
        return question.path in patterns or any(
            pattern.endswith("*") and question.path.startswith(pattern[:-1]) for pattern in patterns
        )
    names, namespaces = rule.get("resourceNames"), rule.get("namespaces")
    wanted = {question.resource, f"*/{question.resource.partition('/')[2]}" if "/" in question.resource else "*"}
    resources = set(rule.get("resources") or ())
    return (
        _has(rule.get("apiGroups"), question.group)
        and bool(resources & wanted or "*" in resources)
        and (not names or question.name in names)
        and (not namespaces or _has(namespaces, question.namespace))
    )


def _has(values: Sequence[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def _user(entry: Mapping[str, Any]) -> User:
    return User(
        entry["name"],
        tuple(entry["rules"]),
        (*entry["groups"], "system:authenticated"),
        extra={key: tuple(values) for key, values in entry.get("extra", {}).items()},
        expires=entry.get("expires", math.inf),
    )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"


def with_bound_rules(store: Store, user: User) -> User:
    """`user` with every rule that a binding in the cluster grants."""
    bound = tuple(_bound_rules(store, user))
    return dataclasses.replace(user, rules=(*user.rules, *bound)) if bound else user


def _bound_rules(store: Store, user: User) -> Iterator[Rule]:
    for binding in store.list(CLUSTER_ROLE_BINDINGS):
        if _is_subject(binding, user):
            yield from _rules(store, binding, "")
    for binding in store.list(ROLE_BINDINGS):
        if _is_subject(binding, user):
            namespace = binding["metadata"]["namespace"]
            for rule in _rules(store, binding, namespace):
                if rule.get("resources"):
                    yield {**rule, "namespaces": [namespace]}


def _rules(store: Store, binding: Object, namespace: str) -> list[Rule]:
    reference = binding["roleRef"]
    local = reference["kind"] == "Role"
    role = store.find(ROLES if local else CLUSTER_ROLES, namespace if local else "", reference["name"])
    rules: list[Rule] = (role or {}).get("rules") or []
    return rules


def _is_subject(binding: Object, user: User) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind == "ServiceAccount":
            kind, name = "User", f"{SERVICE_ACCOUNT_PREFIX}{subject.get('namespace', '')}:{name}"
        if (kind == "User" and name == user.name) or (kind == "Group" and name in user.groups):
            return True
    return False
