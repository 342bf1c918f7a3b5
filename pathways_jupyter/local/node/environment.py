"""The environment of a container: its variables and arguments, and its ``kill``.

Ordinary users cannot create process namespaces, and ``kubectl exec POD -- /bin/sh -c "kill -s SIGILL 1"`` is the usual
way to break a worker on purpose. So each container has a ``kill`` on its PATH for which process id 1 is the container's
main process, and a shell started with ``-c`` gets it as a function, since shells have a built-in ``kill``. Nothing else
is emulated: ``ps`` shows the machine's processes.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.local.apiserver.resources import CONFIG_MAPS, SECRETS, Object, ResourceType
from pathways_jupyter.local.apiserver.store import Store

_REFERENCE = re.compile(r"\$(\$|\((?P<name>[^()\s]+)\))")
_TARGET = re.compile(r"grpc://(?P<host>[^:/]+):(?P<port>\d+)")
_TARGET_VARIABLE = "JAX_BACKEND_TARGET"
_SUBSCRIPT = re.compile(r"metadata\.(?P<field>labels|annotations)\['(?P<key>[^']+)'\]")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})

# A first -1 is SIGHUP; a later one means every process, which here would include those outside the container.
_KILL = r"""
before= count=0
for word; do
  shift
  count=$((count + 1))
  case "$before $word" in
    "-s "* | "-n "*) set -- "$@" "${word#SIG}" ;;
    *" 1") set -- "$@" "$PATHWAYS_LOCAL_MAIN_PID" ;;
    *" -1") [ $count = 1 ] && set -- "$@" -1 || set -- "$@" "-$PATHWAYS_LOCAL_MAIN_PID" ;;
    *" -SIG"*) set -- "$@" "-${word#-SIG}" ;;
    *" -n") set -- "$@" -s ;;
    *) set -- "$@" "$word" ;;
  esac
  before=$word
done
command kill "$@"
"""


class SpecError(PathwaysError):
    """The container refers to an object that does not exist; the message goes into the pod's status."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by the variable's value; ``$$`` stands for ``$``, unknown names stay as they are."""

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        return variables.get(name, match[0])

    return _REFERENCE.sub(replace, text)


def container_environment(container: Object, pod: Object, *, base: Mapping[str, str], store: Store) -> dict[str, str]:
    """Return `base`, then what ``envFrom`` and ``env`` add in order; each may refer to those before it.

    Args:
      pod: The pod, with its addresses in its status already.

    Raises:
      SpecError: A config map, a secret or a key that must exist does not, or a field cannot be referred to.
    """
    namespace = pod["metadata"]["namespace"]
    variables = dict(base)
    for source in container.get("envFrom") or ():
        for kind, resource in (("configMapRef", CONFIG_MAPS), ("secretRef", SECRETS)):
            if reference := source.get(kind):
                data = _data(store, resource, namespace, reference)
                variables.update({source.get("prefix", "") + key: value for key, value in data.items()})
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source is None:
            variables[variable["name"]] = expand(variable.get("value", ""), variables)
        elif (value := _value(source, container, pod, store)) is not None:
            variables[variable["name"]] = value
    return variables


def point_jax(variables: dict[str, str], socket: Callable[[str, int], Path | None]) -> None:
    """Replace the name of a pod in JAX's target by the socket of its proxy, in place.

    JAX resolves names in C++, where it finds only those that this machine knows, and no name server knows pods. The
    bytes stay in a socket that only this user can open, so the client needs no credentials of Google Cloud either.

    Args:
      socket: Returns the socket that stands for a port of a pod, by its name, or None.
    """
    match = _TARGET.fullmatch(variables.get(_TARGET_VARIABLE, ""))
    if match is not None and (path := socket(match["host"], int(match["port"]))) is not None:
        variables[_TARGET_VARIABLE] = f"grpc://unix:{path}"
        variables.setdefault("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "true")


def field(pod: Object, path: str) -> str:
    """Return the value of a ``fieldRef`` to `path`; empty when the pod has no such label or annotation.

    Raises:
      SpecError: There is no such field to refer to.
    """
    if match := _SUBSCRIPT.fullmatch(path):
        return str((pod["metadata"].get(match["field"]) or {}).get(match["key"], ""))
    if path not in _FIELDS:
        raise SpecError(f"fieldPath {path!r} is not supported")
    value: Any = pod
    for step in path.split("."):
        value = value.get(step, "") if isinstance(value, dict) else ""
    return ",".join(each["ip"] for each in value) if path == "status.podIPs" else str(value)


_FIELDS = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.podIP",
        "status.podIPs",
    }
)


def _value(source: Object, container: Object, pod: Object, store: Store) -> str | None:
    if reference := source.get("fieldRef"):
        return field(pod, reference["fieldPath"])
    if reference := source.get("resourceFieldRef"):
        kind, _, resource = reference["resource"].partition(".")
        return str((container.get("resources", {}).get(kind) or {}).get(resource, "0"))
    for kind, resource_type in (("configMapKeyRef", CONFIG_MAPS), ("secretKeyRef", SECRETS)):
        if reference := source.get(kind):
            data = _data(store, resource_type, pod["metadata"]["namespace"], reference)
            if reference["key"] not in data and not reference.get("optional"):
                raise SpecError(f"couldn't find key {reference['key']} in {resource_type.kind} {reference['name']}")
            return data.get(reference["key"])
    raise SpecError("valueFrom names no source")


def _data(store: Store, resource: ResourceType, namespace: str, reference: Object) -> dict[str, str]:
    source = store.find(resource, namespace, reference.get("name", ""))
    if source is None:
        if reference.get("optional"):
            return {}
        raise SpecError(f'{resource.singular} "{reference.get("name", "")}" not found')
    data = source.get("data") or {}
    if resource is SECRETS:
        return {key: base64.b64decode(value).decode("utf-8", "surrogateescape") for key, value in data.items()}
    return dict(data)


def install_kill(directory: Path) -> None:
    """Write the program that every container has on its PATH before the machine's own."""
    directory.mkdir(mode=0o700, exist_ok=True)
    program = directory / "kill"
    program.write_text(f"#!/bin/sh\n{_KILL}", encoding="utf-8")
    program.chmod(0o700)


def with_kill(command: Sequence[str]) -> list[str]:
    """Return `command`, with ``kill`` as a function where it is a shell that runs a script."""
    adapted = list(command)
    if len(adapted) > 2 and os.path.basename(adapted[0]) in _SHELLS and "c" in adapted[1] and adapted[1][0] == "-":
        adapted[2] = f"kill() {{{_KILL}}}; {adapted[2]}"
    return adapted
