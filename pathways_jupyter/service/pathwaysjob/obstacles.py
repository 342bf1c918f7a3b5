"""Flaws of a job, seen in its containers, that keep its programs from each other, or notebooks from its proxy.

Tools write such jobs, the cluster accepts them, and all their pods run: nothing in their state says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pathways_jupyter.base.text import some
from pathways_jupyter.service import names

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^()\s]+)\))")
"""A reference to a variable, or an escaped dollar, which has no name."""
_OF_SERVICES = re.compile(r"[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT\w*|PORT\w*)")
"""Variables that the kubelet adds for each Service of the namespace."""
_PROGRAMS = frozenset({names.RESOURCE_MANAGER_CONTAINER, names.PROXY_CONTAINER, names.WORKER_CONTAINER})


def unset_references(containers: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the references in arguments and variables of Pathways' containers to variables that these do not set.

    Kubernetes leaves them as they stand. Those of other containers are no mistake: to a shell ``$(date)`` is a command.
    """
    missing = (
        f"{container['name']}: $({name})"
        for container in containers
        if container.get("name") in _PROGRAMS
        for name in _unset(container)
    )
    return tuple(dict.fromkeys(missing))


def _unset(container: Mapping[str, Any]) -> Iterator[str]:
    if container.get("envFrom"):
        # Whatever the ConfigMap or Secret has.
        return
    known: set[str] = set()

    def unknown(text: object) -> Iterator[str]:
        for match in _REFERENCE.finditer(str(text)):
            if match["name"] and match["name"] not in known and not _OF_SERVICES.fullmatch(match["name"]):
                yield match["name"]

    for variable in container.get("env") or ():
        # A variable may refer to those before it.
        yield from unknown(variable.get("value") or "")
        known.add(str(variable.get("name")))
    for text in (*(container.get("command") or ()), *(container.get("args") or ())):
        yield from unknown(text)


def demands_alts(containers: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the proxy among these accepts on Google Cloud only clients with ALTS; False without a proxy."""
    for container in containers:
        if container.get("name") == names.PROXY_CONTAINER:
            variables = {each.get("name"): each.get("value") for each in container.get("env") or ()}
            return variables.get(names.INSECURE_CREDENTIALS) != "true"
    return False


def explain_unset(job: str, unset: Iterable[str]) -> str:
    """Return a sentence about what :func:`unset_references` has found."""
    return (
        f"Job {job} refers to variables that its containers do not set, and Kubernetes leaves them as they stand "
        f"({some(list(unset))})."
    )


def explain_alts(job: str) -> str:
    """Return a sentence about a proxy that demands ALTS."""
    return (
        f"On Google Cloud the proxy of job {job} accepts only clients with ALTS, which the tunnel does not have: "
        f"its container does not set {names.INSECURE_CREDENTIALS}."
    )
