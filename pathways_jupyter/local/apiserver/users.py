"""Users: tokens, and the rules that say what their bearers may do."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathways_jupyter.local.directory import write_private

Rule = Mapping[str, Any]
"""As in RBAC: ``apiGroups``, ``resources``, ``verbs``, ``resourceNames``, ``nonResourceURLs``; ``namespaces`` limits it
further. ``*`` stands for all, and so does a missing ``resourceNames`` or ``namespaces``."""

HEALTH = ("/healthz", "/livez", "/readyz")
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
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
    """The tokens, kept in a file that only their owner can read.

    Args:
      path: The file; made with mode 0600 when the first token is added.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._tokens = json.loads(path.read_text(encoding="utf-8"))

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
        record = {
            "name": name,
            "rules": list(_EVERYTHING if rules is None else rules),
            "groups": list(groups),
            "extra": {key: list(values) for key, values in (extra or {}).items()},
        }
        for token, known in self._tokens.items():
            if known == record:
                return token
        token = secrets.token_urlsafe(32)
        self._tokens[token] = record
        write_private(self._path, json.dumps(self._tokens))
        return token

    def revoke(self, key: str, value: str) -> None:
        """Revoke every token whose `extra` has `value` under `key`."""
        rest = {token: record for token, record in self._tokens.items() if value not in record["extra"].get(key, ())}
        if len(rest) < len(self._tokens):
            self._tokens = rest
            write_private(self._path, json.dumps(rest))

    def who(self, authorization: str) -> User | None:
        """Return the user behind an ``Authorization`` header; None for a token that is not valid."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return ANONYMOUS
        record = self._tokens.get(token.strip())
        if record is None:
            return None
        return User(record["name"], record["rules"], (*record["groups"], "system:authenticated"), record["extra"])


def allows(rule: Rule, question: Question) -> bool:
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
