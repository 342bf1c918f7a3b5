"""The accelerator catalogue: instance types, topologies, and the machines they run on.

An *instance type* such as ``tpuv6e:2x2`` names one slice: a TPU version and a topology in chips. Everything else
(chips, VMs per slice, GKE node labels) follows from this table. Source: the machine types
that Pathways on GKE supports.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import LARGEST_NUMBER, count

_FLAT = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_SMALL_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
_V4 = (*_SMALL_CUBES, "4x4x4", "4x4x8", "4x8x8", "4x4x16", "8x8x8", "8x8x12", "8x8x16", "4x16x16", "8x16x16")


@dataclass(frozen=True)
class MachineType:
    """One GKE machine type that carries TPU chips."""

    name: str
    version: str
    accelerator: str
    chips: int
    device_kind: str
    topologies: tuple[str, ...]
    cubes: bool = False
    """True if other three-dimensional topologies in multiples of four are allowed as well."""


MACHINES: tuple[MachineType, ...] = (
    MachineType("tpu7x-standard-4t", "tpu7x", "tpu7x", 4, "TPU7x", _SMALL_CUBES, cubes=True),
    MachineType("ct6e-standard-4t", "tpuv6e", "tpu-v6e-slice", 4, "TPU v6 lite", ("1x1", *_FLAT)),
    MachineType("ct6e-standard-8t", "tpuv6e1t", "tpu-v6e-slice", 8, "TPU v6 lite", ("2x4",)),
    MachineType("ct5p-hightpu-4t", "tpuv5", "tpu-v5p-slice", 4, "TPU v5", _SMALL_CUBES, cubes=True),
    MachineType("ct5lp-hightpu-4t", "tpuv5e", "tpu-v5-lite-podslice", 4, "TPU v5 lite", _FLAT),
    MachineType("ct5lp-hightpu-8t", "tpuv5e1t", "tpu-v5-lite-podslice", 8, "TPU v5 lite", ("2x4",)),
    MachineType("ct4p-hightpu-4t", "tpuv4", "tpu-v4-podslice", 4, "TPU v4", _V4),
)

_GENERATIONS: Mapping[str, tuple[str, ...]] = {
    "v6e": ("tpuv6e", "tpuv6e1t"),
    "v5p": ("tpuv5",),
    "v5e": ("tpuv5e", "tpuv5e1t"),
    "v5litepod": ("tpuv5e", "tpuv5e1t"),
    "v4": ("tpuv4",),
}
"""Google's short name of each TPU generation, with its versions in this table, the most common one first."""
_CORES_PER_CHIP: Mapping[str, int] = {"v5p": 2, "v4": 2}
"""Generations for which the number in a name such as ``v4-8`` counts cores; for others it counts chips."""

_BY_VERSION: Mapping[str, MachineType] = {machine.version: machine for machine in MACHINES}
_BY_NAME: Mapping[str, MachineType] = {
    **{machine.name: machine for machine in MACHINES},
    **{name: _BY_VERSION[versions[0]] for name, versions in _GENERATIONS.items()},
}
_TOPOLOGY = re.compile(r"\d+(x\d+){1,2}")
_AXIS = re.compile(r"[1-9][0-9]{0,3}")
_MOST_CHIPS = 65_536
"""More than any pod has; other users write types into the cluster, and a table has a row for each host of one."""
_COUNTED = re.compile(rf"(?:tpu)?(?P<name>{'|'.join(_GENERATIONS)})-(?P<number>[0-9]{{1,6}})")


@dataclass(frozen=True)
class InstanceType:
    """One kind of slice, e.g. ``tpuv6e:2x2``."""

    machine: MachineType
    topology: str

    def __str__(self) -> str:
        return f"{self.machine.version}:{self.topology}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Chips along each axis: two axes, or three on versions wired as a torus."""
        return tuple(int(axis) for axis in self.topology.split("x"))

    @property
    def chips(self) -> int:
        """Chips in one slice."""
        return math.prod(self.shape)

    @property
    def hosts(self) -> int:
        """VMs (hosts) in one slice."""
        return max(1, self.chips // self.machine.chips)

    @property
    def chips_per_host(self) -> int:
        """Chips used per host; fewer than the machine has if the slice is smaller than one machine."""
        return self.chips // self.hosts


def parse_instance_type(text: str) -> InstanceType:
    """Read ``tpuv6e:2x2``; also with a machine type's or a generation's name (``ct6e-standard-4t:2x2``, ``v6e:2x2``).

    Google's names of slices, such as ``v6e-4``, are accepted if they are unambiguous.

    Raises:
      ConfigError: The version or the topology is not in the catalogue; the hint suggests similar ones.
    """
    text = text.strip()
    if counted := _COUNTED.fullmatch(text):
        return _by_size(text, counted["name"], int(counted["number"]))
    version, separator, topology = text.partition(":")
    machine = _BY_VERSION.get(version) or _BY_NAME.get(version)
    if machine is None:
        versions = sorted(_BY_VERSION)
        close = difflib.get_close_matches(version, versions, n=1)
        likely = topology if _TOPOLOGY.fullmatch(topology) else "2x2"
        suggestion = f"Did you mean {close[0]}:{likely}? " if close else ""
        raise ConfigError(
            f"Unknown TPU version {version!r} in instance type {text!r}.",
            hint=f"{suggestion}Known versions: {', '.join(versions)}.",
        )
    if not separator or not _valid_topology(machine, topology):
        more = ", or multiples of 4 along three axes" if machine.cubes else ""
        problem = f"has no topology {topology!r}" if separator else "needs a topology"
        raise ConfigError(
            f"Instance type {text!r}: {machine.version} {problem}.",
            hint=f"Topologies of {machine.version}: {', '.join(machine.topologies)}{more}.",
        )
    return InstanceType(machine, topology)


def chips_of_hosts(text: str) -> list[int]:
    """Return the chips of each host of a slice; empty for an instance type that this version does not know."""
    try:
        parsed = parse_instance_type(text)
    except ConfigError:
        return []
    return [parsed.chips_per_host] * parsed.hosts


def _by_size(text: str, generation: str, number: int) -> InstanceType:
    """Return the single instance type that a name such as ``v6e-4`` stands for."""
    chips = number / _CORES_PER_CHIP.get(generation, 1)
    machines = [_BY_VERSION[version] for version in _GENERATIONS[generation]]
    every = [InstanceType(machine, topology) for machine in machines for topology in machine.topologies]
    fitting = [each for each in every if each.chips == chips]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise ConfigError(
            f"There is no slice {text}.",
            hint=f"Slices of {generation}: {', '.join(f'{each} ({each.chips} chips)' for each in every)}.",
        )
    meant = [f"{each} ({count(each.hosts, 'host')} of {each.chips_per_host} chips)" for each in fitting]
    raise ConfigError(
        f"{text} is ambiguous: {' or '.join(meant)}.", hint=f"Use the type that the service has, e.g. {fitting[0]}."
    )


def parse_instances(text: str) -> dict[str, int]:
    """Read ``tpuv6e:2x2=2`` or ``tpuv6e:2x2=2,tpuv5e:4x4=1``; a bare type means one slice.

    The text of a dictionary is accepted too, with or without quotation marks: ``{"tpuv6e:2x2": 2}``.

    Raises:
      ConfigError: A part is malformed, a count is not a positive number, or a type is named twice.
    """
    written = text.strip()
    is_dictionary = written.startswith("{") and written.endswith("}")
    counts: list[tuple[str, str]] = []
    for part in filter(None, (each.strip() for each in written.strip("{}").split(","))):
        # A dictionary's last colon separates, because a type contains one too.
        name, separator, number = part.rpartition(":") if is_dictionary else part.partition("=")
        if is_dictionary:
            name = name.strip(" \"'")
        elif not separator:
            number = "1"
        counts.append((name, number))
    if not counts:
        raise ConfigError(
            "No TPU instance type was given.",
            hint=advice("For example: {tpu:tpuv6e:2x2=2} (two slices of four chips)."),
        )
    return by_type(counts)


def by_type(counts: Iterable[tuple[str, str | int]]) -> dict[str, int]:
    """Return numbers of slices by the canonical names of their types, of which `counts` may have others.

    Raises:
      ConfigError: A type is unknown, a count is not a positive number, or a type is named twice.
    """
    instances: dict[str, int] = {}
    for name, number in counts:
        key = str(parse_instance_type(name))
        if key in instances:
            raise ConfigError(f"Instance type {key} occurs twice.", hint=f"Give the sum of both counts: {key}=N.")
        instances[key] = parse_count(number, key)
    return instances


def parse_count(count: str | int, name: str) -> int:
    """Parse a number of slices.

    Raises:
      ConfigError: It is not a whole number of at least one, or larger than Kubernetes can store.
    """
    text = str(count).strip()
    # By its length first: Python refuses to convert thousands of digits.
    number = int(text) if text.isdecimal() and len(text) <= len(str(LARGEST_NUMBER)) else 0
    if isinstance(count, bool) or not 1 <= number <= LARGEST_NUMBER:
        raise ConfigError(
            f"{name}={count}: the number of slices must be a whole number of at least 1, at most {LARGEST_NUMBER}.",
            hint=f"For example: {name}=2.",
        )
    return number


def format_instances(instances: Mapping[str, int]) -> str:
    """Format instances as :func:`parse_instances` reads them."""
    return ",".join(f"{name}={count}" for name, count in instances.items())


def _valid_topology(machine: MachineType, topology: str) -> bool:
    if topology in machine.topologies:
        return True
    axes = topology.split("x")
    return (
        machine.cubes
        and len(axes) == 3
        and all(_AXIS.fullmatch(axis) and int(axis) % 4 == 0 for axis in axes)
        and math.prod(map(int, axes)) <= _MOST_CHIPS
    )
