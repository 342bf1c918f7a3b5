"""RBAC rules that roles and bindings grant to users, in addition to those of their tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from pathways_jupyter.local.apiserver.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Object,
)
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.users import Rule, User

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
    return any(_names(subject, user) for subject in binding.get("subjects") or ())


def _names(subject: dict[str, Any], user: User) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "ServiceAccount":
        return user.name == f"{SERVICE_ACCOUNT_PREFIX}{subject.get('namespace', '')}:{name}"
    return (kind == "User" and name == user.name) or (kind == "Group" and name in user.groups)
