"""Validation of built-in kinds: the checks of a real API server that a manifest is likely to hit.

Each gives pairs of a field's path and what is wrong with it, in the words of the real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pathways_jupyter.local.apiserver.resources import Object

Cause = tuple[str, str]

_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")


def unsupported(value: Any, supported: Sequence[str]) -> str:
    """The message for a value that is not among the supported ones."""
    listed = ", ".join(f'"{each}"' for each in supported)
    return f'Unsupported value: "{value}": supported values: {listed}'


def pod_spec_causes(spec: Object, path: str) -> list[Cause]:
    """Faults of a pod's spec."""
    if not isinstance(spec.get("containers"), list) or not spec["containers"]:
        return [(f"{path}.containers", "Required value")]
    causes: list[Cause] = []
    names: set[str] = set()
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            causes += _container(container, f"{path}.{field}[{index}]", names, volumes)
    causes += choice(spec, "restartPolicy", _RESTART_POLICIES, path)
    causes += choice(spec, "dnsPolicy", _DNS_POLICIES, path)
    return causes


def _container(container: Object, where: str, names: set[str], volumes: set[Any]) -> Iterator[Cause]:
    name = container.get("name")
    if not name:
        yield f"{where}.name", "Required value"
    elif name in names:
        yield f"{where}.name", f'Duplicate value: "{name}"'
    names.add(str(name))
    if not container.get("image"):
        yield f"{where}.image", "Required value"
    yield from choice(container, "imagePullPolicy", _PULL_POLICIES, where)
    for index, port in enumerate(container.get("ports") or ()):
        yield from port_causes(port.get("containerPort"), f"{where}.ports[{index}].containerPort")
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield f"{where}.env[{index}].name", "Required value"
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield f"{where}.volumeMounts[{index}].name", f'Not found: "{mount.get("name")}"'


def choice(source: Object, field: str, supported: Sequence[str], path: str) -> Iterator[Cause]:
    """Faults of a field that has one of some values."""
    if source.get(field) not in supported:
        yield f"{path}.{field}", unsupported(source.get(field), supported)


def port_causes(port: Any, path: str) -> Iterator[Cause]:
    """Faults of a port's number."""
    if not isinstance(port, int) or not 0 < port < 65536:
        yield path, f"Invalid value: {port}: must be between 1 and 65535, inclusive"
