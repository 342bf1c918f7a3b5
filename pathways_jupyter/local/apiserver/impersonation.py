"""``kubectl --as``: requests on behalf of another user, by a user who may impersonate that user."""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Iterator

from multidict import MultiMapping

from pathways_jupyter.local.apiserver.api_errors import StatusError, bad_request, forbidden
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.users import (
    ANONYMOUS,
    EVERYTHING,
    SERVICE_ACCOUNT_PREFIX,
    Question,
    User,
    Users,
    with_bound_rules,
)

_USER, _GROUP, _UID, _EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-"
_AUTHENTICATION = "authentication.k8s.io"
_MASTERS = "system:masters"


def acting_user(headers: MultiMapping[str], user: User, users: Users, store: Store) -> User:
    """The effective user of a request: its sender `user`, or the user that its headers impersonate.

    Raises:
      StatusError: 400, the headers name no user; 403, `user` may not impersonate what they name.
    """
    name, groups, uid = headers.get(_USER, ""), headers.getall(_GROUP, []), headers.get(_UID, "")
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA.lower()):
            extra.setdefault(urllib.parse.unquote(header[len(_EXTRA) :].lower()), []).append(value)
    if not name:
        if groups or uid or extra:
            raise bad_request("requested impersonation of groups, a uid or extra fields without a user name")
        return user
    sender = with_bound_rules(store, user)
    for question in _questions(name, groups, uid, extra):
        if not sender.may(question):
            raise _refusal(user, question)
    return assumed(name, groups, uid, extra, users)


def assumed(name: str, groups: list[str], uid: str, extra: dict[str, list[str]], users: Users) -> User:
    """The user who is impersonated, with the rules of its tokens, as if a role granted them."""
    if name.startswith(SERVICE_ACCOUNT_PREFIX) and not groups:
        namespace = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    everyone = "system:unauthenticated" if name == ANONYMOUS.name else "system:authenticated"
    rules = EVERYTHING if _MASTERS in groups else users.rules_of(name)
    found = User(name, rules, tuple(dict.fromkeys([*groups, everyone])))
    return dataclasses.replace(found, uid=uid, extra={key: tuple(values) for key, values in extra.items()})


def _questions(name: str, groups: list[str], uid: str, extra: dict[str, list[str]]) -> Iterator[Question]:
    """The permissions that the sender needs."""
    namespace, _, account = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    if name.startswith(SERVICE_ACCOUNT_PREFIX) and account:
        yield Question("impersonate", "", "serviceaccounts", namespace, account)
    else:
        yield Question("impersonate", "", "users", name=name)
    for group in groups:
        yield Question("impersonate", "", "groups", name=group)
    if uid:
        yield Question("impersonate", _AUTHENTICATION, "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield Question("impersonate", _AUTHENTICATION, f"userextras/{key}", name=value)


def _refusal(user: User, question: Question) -> StatusError:
    where = f'in the namespace "{question.namespace}"' if question.namespace else "at the cluster scope"
    what = f"{question.resource}.{question.group}" if question.group else question.resource
    error = forbidden(
        f'{what} "{question.name}" is forbidden: User "{user.name}" cannot impersonate resource "{question.resource}"'
        f' in API group "{question.group}" {where}'
    )
    error.details = {"name": question.name, "kind": question.resource}
    if question.group:
        error.details["group"] = question.group
    return error
