"""What XLA did on CPUs, sorted as a TPU's profiler would report it: a plane for each chip, a file for each host.

XLA reports operations on the threads that ran them, each with the device that it was for. Those of a device become the
lines "Steps", "XLA Modules" and "XLA Ops" of its plane; what else its threads did becomes the work of its host.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from pathways_jupyter.local.pathways.ifrt import messages
from pathways_jupyter.local.pathways.ifrt.devices import PLATFORM, Device, Devices

HOST = "/host:CPU"
PROXY = "proxy"
"""Stands for the host of what was for no device: the proxy itself."""
_STEPS, _MODULES, _OPS = "Steps", "XLA Modules", "XLA Ops"
_LINES = (_STEPS, _MODULES, _OPS)
_NOISE = ("ThreadpoolListener::", "end: ")
"""How the names of events begin that only link others."""
_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>[\w.-]+) = (?P<shape>\(.*?\)|\S+) (?P<opcode>[\w-]+)\(", re.MULTILINE
)
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_TABLE_ROW = re.compile(r'^(\d+) (?:"(.*)"|\{(.*)\})$')
_FUSION = re.compile(r"kind=k(\w+)")
_LONGEST_TEXT = 1000
_TEXT = "long_name"
"""An operation's text, ``%NAME = ...``, is its event's name in a TPU's profile; its name is what is displayed."""

Instructions = Mapping[tuple[str, str], Mapping[str, str]]
"""What is known of each operation, by the names of its module and its own, as the statistics of a TPU's profile."""
Stats = Mapping[str, Any]


def instructions(executables: Iterable[Any]) -> Instructions:
    """Return what XLA says of the operations of compiled programs; of those with equal names, of the last."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for executable in executables:
        for module in executable.hlo_modules():
            text = module.to_string()
            sources = _sources(text)
            for line in text.splitlines():
                if (match := _INSTRUCTION.match(line)) is None:
                    continue
                expression = line.strip().removeprefix("ROOT ")[:_LONGEST_TEXT]
                stats = {"hlo_category": _category(match["opcode"], line), _TEXT: expression}
                if name := _OP_NAME.search(line):
                    stats["tf_op"] = name[1]
                if (frame := _FRAME.search(line)) and frame[1] in sources:
                    stats["source"] = sources[frame[1]]
                found[module.name, match["name"]] = stats
    return found


def _sources(text: str) -> dict[str, str]:
    """Return ``FILE:LINE`` of each stack frame in the tables at the head of a module's text."""
    tables: dict[str, dict[str, Any]] = {}
    rows: dict[str, Any] = {}
    for line in text.splitlines():
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            rows = tables[line] = {}
        elif row := _TABLE_ROW.match(line):
            fields = (field.partition("=") for field in (row[3] or "").split())
            rows[row[1]] = row[2] if row[2] is not None else {name: value for name, _, value in fields}
    names, places = tables.get("FileNames", {}), tables.get("FileLocations", {})
    found = {}
    for number, frame in tables.get("StackFrames", {}).items():
        place = places.get(frame.get("file_location_id"), {})
        found[number] = f"{names.get(place.get('file_name_id'), '')}:{place.get('line', '')}"
    return found


def _category(opcode: str, line: str) -> str:
    kind = _FUSION.search(line)
    return f"{kind[1].lower()} fusion" if opcode == "fusion" and kind else opcode


def by_host(content: bytes, devices: Devices, known: Instructions) -> dict[str, Any]:
    """Sort a profile of this process.

    Args:
      content: An encoded XSpace, as jaxlib's profiler returns it.

    Returns:
      An XSpace for each host, by its name and in order: ``slice-0-host-0``, ..., and ``proxy``.
    """
    raw = messages.XSpace.FromString(content)
    hosts: dict[str, _Host] = {}
    for device in devices.all:
        if device.is_chip:
            hosts.setdefault(name_of(device), _Host()).chips.append(device)
    hosts[PROXY] = _Host()
    names = {device.id: name_of(device) for device in devices.all}
    operations: dict[int, list[_Event]] = defaultdict(list)
    for plane in raw.planes:
        if plane.name != HOST:
            continue
        for line in plane.lines:
            for event in _events(plane, line):
                if "hlo_op" in event.stats and devices.all[event.device].is_chip:
                    operations[event.device].append(event)
                elif not event.name.startswith(_NOISE):
                    host = names[event.device] if event.device >= 0 else PROXY
                    hosts[host].lines[line.name].append(event)
    others = [plane for plane in raw.planes if plane.name != HOST]
    return {name: _space(name, host, operations, others, known) for name, host in hosts.items()}


def name_of(device: Device) -> str:
    """The name of a device's host."""
    return f"slice-{device.slice_index}-host-{device.host}"


def drop_host(space: Any) -> None:
    """Leave out what hosts did."""
    for plane in [each for each in space.planes if each.name == HOST]:
        space.planes.remove(plane)


@dataclass(frozen=True)
class _Event:
    """One event: when, in picoseconds since the trace began; of which device, -1 for none; and all that is known."""

    name: str
    start: int
    end: int
    device: int
    stats: Stats


@dataclass
class _Host:
    chips: list[Device] = field(default_factory=list)
    lines: dict[str, list[_Event]] = field(default_factory=lambda: defaultdict(list))


def _events(plane: Any, line: Any) -> Iterable[_Event]:
    """Yield the events of one thread; one that names no device is of the device of the event that it is in."""
    owner, until = -1, -1
    for event in sorted(line.events, key=lambda each: (each.offset_ps, -each.duration_ps)):
        stats = {plane.stat_metadata[each.metadata_id].name: _value(plane, each) for each in event.stats}
        start = line.timestamp_ns * 1000 + event.offset_ps
        end = start + event.duration_ps
        device = stats.get("device_ordinal", stats.get("global_device_id"))
        if device is not None:
            owner, until = device, max(end, until) if device == owner else end
        elif start > until:
            owner = -1
        yield _Event(plane.event_metadata[event.metadata_id].name, start, end, owner, stats)


def _value(plane: Any, stat: Any) -> Any:
    kind = stat.WhichOneof("value")
    return plane.stat_metadata[stat.ref_value].name if kind == "ref_value" else getattr(stat, kind or "int64_value")


def _space(
    name: str, host: _Host, operations: Mapping[int, list[_Event]], others: Iterable[Any], known: Instructions
) -> Any:
    space = messages.XSpace(hostnames=[name])
    for device in host.chips:
        plane = _Plane(space, f"/device:{PLATFORM.upper()}:{device.id}")
        about = {"device_type_string": device.kind, "slice": f"slice {device.slice_index}", "host": name}
        for each, value in {**about, "coords": str(device.coords), "global_device_id": device.id}.items():
            plane.describe(plane.proto, each, value)
        _add_operations(plane, sorted(operations.get(device.id, ()), key=lambda each: each.start), known)
    if host.lines:
        plane = _Plane(space, HOST)
        for number, (thread, events) in enumerate(host.lines.items()):
            line = plane.line(number, thread)
            for event in events:
                plane.add(line, event.name, event, event.stats)
    space.planes.extend(others)
    return space


def _add_operations(plane: _Plane, operations: Iterable[_Event], known: Instructions) -> None:
    steps, modules, ops = (plane.line(number, name) for number, name in enumerate(_LINES, start=1))
    runs: dict[Any, list[_Event]] = defaultdict(list)
    for event in operations:
        module, op = event.stats["hlo_module"], event.stats["hlo_op"]
        runs[event.stats["run_id"], module].append(event)
        # XProf counts only operations of which it knows these two numbers.
        numbers = {"program_id": crc32(module.encode()), "symbol_id": crc32(op.encode())}
        about: dict[str, Any] = {"hlo_module": module, **numbers, **known.get((module, op), {})}
        # A TPU's profiler says these once for an operation; but jax.profiler.ProfileData shows only what events say.
        often: dict[str, Any] = {name: about[name] for name in ("hlo_category", "tf_op", "source") if name in about}
        plane.add(ops, op, event, {"run_id": event.stats["run_id"], **often}, about)
    for number, ((run, module), events) in enumerate(runs.items()):
        whole = _Event(module, events[0].start, max(each.end for each in events), events[0].device, {})
        plane.add(modules, module, whole, {"run_id": run})
        plane.add(steps, str(number), whole, {"step_num": number, "run_id": run})


class _Plane:
    """A plane that is being written, with its tables of names."""

    def __init__(self, space: Any, name: str) -> None:
        self.proto = space.planes.add(id=len(space.planes) + 1, name=name)
        self._stats: dict[str, int] = {}
        self._names: dict[Any, int] = {}

    def line(self, number: int, name: str) -> Any:
        """Add a line."""
        return self.proto.lines.add(id=number, display_id=number, name=name)

    def add(self, line: Any, name: str, when: _Event, stats: Stats, about: Stats | None = None) -> None:
        """Add an event.

        Args:
          stats: Of this event.
          about: Of all events of this name; another module's operation of the same name is another one.
        """
        key = (name, (about or {}).get("hlo_module"))
        number = self._names.get(key)
        if number is None:
            number = self._names[key] = len(self._names) + 1
            metadata = self.proto.event_metadata[number]
            metadata.id, metadata.name, metadata.display_name = number, (about or {}).get(_TEXT, name), name
            for each, value in (about or {}).items():
                self.describe(metadata, each, value)
        event = line.events.add(metadata_id=number, offset_ps=when.start, duration_ps=when.end - when.start)
        for each, value in stats.items():
            self.describe(event, each, value)

    def describe(self, message: Any, name: str, value: Any) -> None:
        """Add a statistic."""
        stat = message.stats.add(metadata_id=self._number(name))
        if isinstance(value, bytes):
            stat.bytes_value = value
        elif isinstance(value, str):
            # Texts repeat, so they are names of the table too.
            stat.ref_value = self._number(value)
        elif isinstance(value, float):
            stat.double_value = value
        elif value >= 1 << 63:
            stat.uint64_value = value
        else:
            stat.int64_value = value

    def _number(self, name: str) -> int:
        number = self._stats.get(name)
        if number is None:
            number = self._stats[name] = len(self._stats) + 1
            metadata = self.proto.stat_metadata[number]
            metadata.id, metadata.name = number, name
        return number
