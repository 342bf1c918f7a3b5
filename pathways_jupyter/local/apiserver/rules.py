"""Validation of built-in kinds: the checks of a real API server that a manifest is likely to hit.

Each gives pairs of a field's path and what is wrong with it, in the words of the real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from pathways_jupyter.local.apiserver.resources import Object

Cause = tuple[str, str]

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]?i?))")
_FACTORS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
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
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    for kind, request in (resources.get("requests") or {}).items():
        if kind in limits and _amount(request) > _amount(limits[kind]):
            why = f'Invalid value: "{request}": must be less than or equal to {kind} limit of {limits[kind]}'
            yield f"{where}.resources.requests", why


def choice(source: Object, field: str, supported: Sequence[str], path: str) -> Iterator[Cause]:
    """Faults of a field that has one of some values."""
    if source.get(field) not in supported:
        yield f"{path}.{field}", unsupported(source.get(field), supported)


def port_causes(port: Any, path: str) -> Iterator[Cause]:
    """Faults of a port's number."""
    if not isinstance(port, int) or not 0 < port < 65536:
        yield path, f"Invalid value: {port}: must be between 1 and 65535, inclusive"


def _amount(quantity: Any) -> Fraction:
    """A quantity as a number; its syntax has been checked before."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        return Fraction(0)
    number, exponent, suffix = match.groups()
    if suffix in _BINARY:
        return Fraction(number) * (1 << _BINARY[suffix])
    # An unbounded exponent would be a number of unbounded size.
    power = max(-99, min(int(exponent or _FACTORS.get(suffix or "", 0)), 99))
    scale = Fraction(int(10**power)) if power >= 0 else Fraction(1, int(10**-power))
    return Fraction(number) * scale
