"""The accelerator catalogue: instance types, topologies, and the machines they run on.

An *instance type* such as ``tpuv6e:2x2`` names one slice: a TPU version and a topology in chips. Everything else
(chips, VMs per slice, GKE node labels) follows from this table. Sources: google/pathways-job v0.1.4 and pathwaysutils
0.1.13 for machines of four and eight chips and Pathways' names of their versions; AI-Hypercomputer/xpk
(``core/system_characteristics.py``, June 2026) for ``tpu7``, for machines of one chip and for the number of cubes;
GoogleCloudPlatform/cluster-toolkit v1.95.0 (``pkg/config``) for the machines of v5e and v5p with one and two chips. No
source says which of its two topologies a machine with two chips has.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    cubes: int = 0
    """Most cubes of 4x4x4 chips of the other topologies that are allowed: three axes in multiples of four."""


MACHINES: tuple[MachineType, ...] = (
    MachineType("tpu7x-standard-1t", "tpu7x", "tpu7x", 1, "TPU7x", ("1x1x1",)),
    MachineType("tpu7x-standard-4t", "tpu7x", "tpu7x", 4, "TPU7x", _SMALL_CUBES, cubes=144),
    MachineType("tpu7-standard-1t", "tpu7", "tpu7", 1, "TPU7", ("1x1x1",)),
    MachineType("tpu7-standard-4t", "tpu7", "tpu7", 4, "TPU7", _SMALL_CUBES, cubes=4),
    MachineType("ct6e-standard-1t", "tpuv6e", "tpu-v6e-slice", 1, "TPU v6 lite", ("1x1",)),
    MachineType("ct6e-standard-4t", "tpuv6e", "tpu-v6e-slice", 4, "TPU v6 lite", ("1x1", *_FLAT)),
    MachineType("ct6e-standard-8t", "tpuv6e1t", "tpu-v6e-slice", 8, "TPU v6 lite", ("2x4",)),
    MachineType("ct5p-hightpu-1t", "tpuv5", "tpu-v5p-slice", 1, "TPU v5", ("1x1x1",)),
    MachineType("ct5p-hightpu-2t", "tpuv5", "tpu-v5p-slice", 2, "TPU v5", ("1x2x1", "2x1x1")),
    MachineType("ct5p-hightpu-4t", "tpuv5", "tpu-v5p-slice", 4, "TPU v5", _SMALL_CUBES, cubes=140),
    MachineType("ct5lp-hightpu-1t", "tpuv5e", "tpu-v5-lite-podslice", 1, "TPU v5 lite", ("1x1",)),
    MachineType("ct5lp-hightpu-4t", "tpuv5e", "tpu-v5-lite-podslice", 4, "TPU v5 lite", _FLAT),
    MachineType("ct5lp-hightpu-8t", "tpuv5e1t", "tpu-v5-lite-podslice", 8, "TPU v5 lite", ("2x4",)),
    MachineType("ct4p-hightpu-4t", "tpuv4", "tpu-v4-podslice", 4, "TPU v4", _V4),
)
"""All machine types; where two have the same topology of a version, the first is the one that GKE has it on."""

_SHORT: Mapping[str, str] = {
    "v7x": "tpu7x",
    "v6e": "ct6e",
    "v5p": "ct5p",
    "v5e": "ct5lp",
    "v5litepod": "ct5lp",
    "v4": "ct4p",
}
"""Google's short name of each TPU generation, and the family of its machines."""
_CORES_PER_CHIP: Mapping[str, int] = {"tpu7x": 2, "tpu7": 2, "ct5p": 2, "ct4p": 2}
"""Families for which the number in a name such as ``v4-8`` counts cores; for others it counts chips."""
_OF_TOOLKIT = {f"v5p-{chips}": f"ct5p-hightpu-{chips}t" for chips in (1, 2, 4)}
"""The Cluster Toolkit's names of machines, whose numbers would count cores anywhere else; no slice has so few."""


def _families() -> dict[str, tuple[MachineType, ...]]:
    """Return the machines that each name of theirs means: of one, a version, a family, a label of nodes."""
    known: dict[str, tuple[MachineType, ...]] = {}
    for machine in MACHINES:
        for name in dict.fromkeys((machine.name, machine.version, _family(machine), machine.accelerator)):
            known[name] = (*known.get(name, ()), machine)
    short = {name: known[family] for name, family in _SHORT.items()}
    return known | short | {f"tpu{name}": machines for name, machines in short.items() if f"tpu{name}" not in known}


def _family(machine: MachineType) -> str:
    return machine.name.partition("-")[0]


_MACHINES_OF: Mapping[str, tuple[MachineType, ...]] = _families()
_AXIS = re.compile(r"[1-9][0-9]{0,3}")
_COUNTED = re.compile(r"(?P<name>.+)-(?P<number>[0-9]{1,6})")
_DASHED = re.compile(r"(?P<name>.+)-(?P<topology>\d+(x\d+){1,2})")
"""As xpk writes types: ``v6e-2x2``."""


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
    """Read ``tpuv6e:2x2``; also with another name of its machines.

    Accepted are the machine type (``ct6e-standard-4t:2x2``), its family (``ct6e:2x2``), Google's name of the generation
    (``v6e:2x2``) and the label of the nodes (``tpu-v6e-slice:2x2``), with a dash for the colon (``v6e-2x2``), and
    Google's names of slices (``v6e-4``) if they are unambiguous.

    Raises:
      ConfigError: The version or the topology is not in the catalogue; the hint suggests similar ones.
    """
    text = text.strip()
    if (named := _OF_TOOLKIT.get(text)) is not None:
        (machine,) = _MACHINES_OF[named]
        whole_machines = [each for each in _types(machine) if each.chips == machine.chips]
        return _by_topologies(text, whole_machines)
    if (counted := _COUNTED.fullmatch(text)) and counted["name"] in _MACHINES_OF:
        return _by_size(text, counted["name"], int(counted["number"]))
    name, separator, topology = text.partition(":")
    if not separator and (dashed := _DASHED.fullmatch(text)):
        name, separator, topology = dashed["name"], "-", dashed["topology"]
    machines = _MACHINES_OF.get(name)
    if machines is None:
        versions = sorted({machine.version for machine in MACHINES})
        close = difflib.get_close_matches(name, versions, n=1)
        raise ConfigError(
            f"Unknown TPU version {name!r} in instance type {text!r}.",
            hint=f"{_suggestion(close[0], topology) if close else ''}Known versions: {', '.join(versions)}.",
        )
    fitting = [machine for machine in machines if separator and _has_topology(machine, topology)]
    if not fitting:
        more = ", or multiples of 4 along three axes" if any(machine.cubes for machine in machines) else ""
        problem = f"has no topology {topology!r}" if separator else "needs a topology"
        listed = dict.fromkeys(topology for machine in machines for topology in machine.topologies)
        raise ConfigError(
            f"Instance type {text!r}: {name} {problem}.", hint=f"Topologies of {name}: {', '.join(listed)}{more}."
        )
    return InstanceType(fitting[0], topology)


def canonical(text: str) -> str:
    """Return an instance type in the form that this package writes; as it is if it is none that it knows.

    Other tools write types into the cluster by names of their own.
    """
    try:
        return str(parse_instance_type(text))
    except ConfigError:
        return text


def _suggestion(version: str, topology: str) -> str:
    """Return the question whether `version` was meant, with a topology that it has."""
    machines = _MACHINES_OF[version]
    usual = next(each for each in max(machines, key=lambda each: each.chips).topologies if each != "1x1")
    fits = any(_has_topology(machine, topology) for machine in machines)
    return f"Did you mean {version}:{topology if fits else usual}? "


def chips_of_hosts(text: str) -> list[int]:
    """Return the chips of each host of a slice; empty for an instance type that this version does not know."""
    try:
        parsed = parse_instance_type(text)
    except ConfigError:
        return []
    return [parsed.chips_per_host] * parsed.hosts


def _by_size(text: str, name: str, number: int) -> InstanceType:
    """Return the single instance type that a name such as ``v6e-4`` stands for."""
    machines = _MACHINES_OF[name]
    chips = number / _CORES_PER_CHIP.get(_family(machines[0]), 1)
    every = [each for machine in machines for each in _types(machine)]
    fitting: dict[str, InstanceType] = {}
    for each in (*every, *(cube for machine in machines for cube in _cubes(machine, chips))):
        if each.chips == chips:
            fitting.setdefault(str(each), each)
    if not fitting:
        listed = dict.fromkeys(f"{each} ({count(each.chips, 'chip')})" for each in every)
        raise ConfigError(f"There is no slice {text}.", hint=f"Slices of {name}: {', '.join(listed)}.")
    return _by_topologies(text, list(fitting.values()))


def _by_topologies(text: str, fitting: Sequence[InstanceType]) -> InstanceType:
    """Return the one that `text` can mean.

    Raises:
      ConfigError: It can mean several.
    """
    if len(fitting) == 1:
        return fitting[0]
    meant = [f"{each} ({count(each.hosts, 'host')} of {count(each.chips_per_host, 'chip')})" for each in fitting]
    raise ConfigError(
        f"{text} is ambiguous: {' or '.join(meant)}.", hint=f"Use the type that the service has, e.g. {fitting[0]}."
    )


def _types(machine: MachineType) -> Iterator[InstanceType]:
    """Yield the instance types of a machine that are listed."""
    return (InstanceType(machine, topology) for topology in machine.topologies)


def _cubes(machine: MachineType, chips: float) -> Iterator[InstanceType]:
    """Yield the instance types of whole cubes with so many chips, the most compact one first."""
    number, rest = divmod(chips, 64)
    if rest or not 1 <= number <= machine.cubes:
        return
    divisors = [each for each in range(1, int(number) + 1) if number % each == 0]
    axes = itertools.combinations_with_replacement(divisors, 3)
    shapes = sorted((each for each in axes if math.prod(each) == number), key=sum)
    for shape in shapes:
        yield InstanceType(machine, "x".join(str(4 * axis) for axis in shape))


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


def _has_topology(machine: MachineType, topology: str) -> bool:
    if topology in machine.topologies:
        return True
    axes = topology.split("x")
    return (
        machine.cubes > 0
        and len(axes) == 3
        and all(_AXIS.fullmatch(axis) and int(axis) % 4 == 0 for axis in axes)
        and math.prod(map(int, axes)) <= 64 * machine.cubes
    )
