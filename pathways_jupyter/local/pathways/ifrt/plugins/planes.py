"""Events of XLA on CPUs, sorted as a TPU's profiler would report them: a plane for each chip, a file for each host.

XLA reports operations on the threads that ran them, each with the device that it was for. Those of a device become the
lines "Steps", "XLA Modules" and "XLA Ops" of its plane; what else its threads did becomes the work of its host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

from pathways_jupyter.local.pathways.ifrt import messages
from pathways_jupyter.local.pathways.ifrt.devices import PLATFORM, Device, Devices

HOST = "/host:CPU"
PROXY = "proxy"
"""Stands for the host of what was for no device: the proxy itself."""
_STEPS, _MODULES, _OPS = "Steps", "XLA Modules", "XLA Ops"
_LINES = (_STEPS, _MODULES, _OPS)
_NOISE = ("ThreadpoolListener::", "end: ")
"""Prefixes of the names of events that only link others."""
_LONGEST_TEXT = 1000
_TEXT = "long_name"
"""An operation's text, ``%NAME = ...``, is its event's name in a TPU's profile; its name is what is displayed."""

Instructions = Mapping[tuple[str, str], Mapping[str, str]]
"""Facts about each operation, by the names of its module and its own, as the statistics of a TPU's profile."""


def instructions(executables: Iterable[Any]) -> Instructions:
    """Return what XLA says of the operations of compiled programs; of those with equal names, of the last."""
    by_name: dict[tuple[str, str], dict[str, str]] = {}
    for executable in executables:
        for module in executable.hlo_modules():
            proto = messages.HloModule.FromString(module.as_serialized_hlo_module_proto())
            texts = _texts(module)
            operations = [(each, op) for each in proto.computations for op in each.instructions]
            roots = {each.id: op.opcode for each, op in operations if op.id == each.root_id}
            for _, op in operations:
                stats = {"hlo_category": _category(op, roots), _TEXT: texts[op.name]}
                if op.metadata.op_name:
                    stats["tf_op"] = op.metadata.op_name
                if op.metadata.stack_frame_id:
                    stats["source"] = _source(proto.stack_frame_index, op.metadata.stack_frame_id)
                by_name[module.name, op.name] = stats
    return by_name


def _texts(module: Any) -> dict[str, str]:
    """Return each operation as an expression, ``%NAME = ...``, by its name; only a module's text has these."""
    lines = (line.strip().removeprefix("ROOT ") for line in module.to_string().splitlines())
    return {line[1:].partition(" = ")[0]: line[:_LONGEST_TEXT] for line in lines if line.startswith("%")}


def _category(op: Any, roots: Mapping[int, str]) -> str:
    """Return the category of an operation; `roots` has the opcodes that computations end with, by their ids."""
    if op.opcode != "fusion":
        return str(op.opcode)
    if op.fusion_kind == "kCustom":
        # So XLA:CPU gives a single operation to a library of kernels.
        return roots[op.called_computation_ids[0]]
    return f"{op.fusion_kind.removeprefix('k').lower()} fusion"


def _source(index: Any, frame: int) -> str:
    """Return ``FILE:LINE`` of a stack frame; the tables are numbered from 1."""
    location = index.file_locations[index.stack_frames[frame - 1].file_location_id - 1]
    return f"{index.file_names[location.file_name_id - 1]}:{location.line}"


def by_host(content: bytes, devices: Devices, facts: Instructions) -> dict[str, Any]:
    """Sort a profile of this process.

    Args:
      content: An encoded XSpace, as jaxlib's profiler returns it.

    Returns:
      An XSpace for each host, by its name and in order: ``slice-0-host-0``, ..., and ``proxy``.
    """
    raw = messages.XSpace.FromString(content)
    chips: dict[str, list[Device]] = defaultdict(list)
    for each in devices.all:
        if each.is_chip:
            chips[name_of(each)].append(each)
    chips[PROXY] = []
    operations: dict[int, list[_Operation]] = defaultdict(list)
    hosts: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    (before,) = [plane for plane in raw.planes if plane.name == HOST] or [messages.XPlane()]
    for line in before.lines:
        for event, owner, operation in _events(before, line):
            device = devices.all[owner] if owner >= 0 else None
            if operation is not None and device is not None and device.is_chip:
                operations[owner].append(operation)
            else:
                hosts[name_of(device) if device is not None else PROXY][line.name].append(event)
    others = [plane for plane in raw.planes if plane.name != HOST]
    files = {}
    for name, own in chips.items():
        space = files[name] = messages.XSpace(hostnames=[name])
        for device in own:
            _add_chip(space, device, operations[device.id], facts)
        if name in hosts:
            _add_host(space, before, hosts[name])
        space.planes.extend(others)
    return files


def name_of(device: Device) -> str:
    """Return the name of a device's host."""
    return f"slice-{device.slice_index}-host-{device.host}"


def drop_host(space: Any) -> None:
    """Leave out what hosts did."""
    for plane in [each for each in space.planes if each.name == HOST]:
        space.planes.remove(plane)


class _Operation(NamedTuple):
    """One operation on one device, in picoseconds since the trace began."""

    start: int
    end: int
    name: str
    module: str
    run: int


def _events(plane: Any, line: Any) -> Iterator[tuple[Any, int, _Operation | None]]:
    """Yield the events of one thread, each with its device (-1: none), and what it says if it is an operation.

    One that names no device is of the device of the event that it is in. There are hundreds of thousands of them, which
    is why nothing is looked up twice here.
    """
    names = {number: each.name for number, each in plane.stat_metadata.items()}
    skipped = {number for number, each in plane.event_metadata.items() if each.name.startswith(_NOISE)}
    base = line.timestamp_ns * 1000
    events = [(each.offset_ps, -each.duration_ps, each) for each in line.events if each.metadata_id not in skipped]
    events.sort(key=itemgetter(0, 1))
    owner, until = -1, -1
    for start, negative, event in events:
        end, device, operation = start - negative, -1, None
        stats = {names[each.metadata_id]: each for each in event.stats}
        if (ordinal := stats.get("device_ordinal") or stats.get("global_device_id")) is not None:
            device = ordinal.int64_value or ordinal.uint64_value
        if "hlo_op" in stats:
            op, module = (
                names[each.ref_value] if each.ref_value else each.str_value
                for each in (stats["hlo_op"], stats["hlo_module"])
            )
            operation = _Operation(base + start, base + end, op, module, stats["run_id"].int64_value)
        if device >= 0:
            until = max(end, until) if device == owner else end
            owner = device
        elif start > until:
            owner = -1
        yield event, owner, operation


def _add_host(space: Any, before: Any, lines: Mapping[str, Iterable[Any]]) -> None:
    """Add the plane of what threads did for a host, with the tables of the plane that it is a part of."""
    plane = space.planes.add(id=len(space.planes) + 1, name=HOST, stats=before.stats)
    plane.event_metadata.MergeFrom(before.event_metadata)
    plane.stat_metadata.MergeFrom(before.stat_metadata)
    begins = {each.name: each.timestamp_ns for each in before.lines}
    for number, (thread, events) in enumerate(lines.items()):
        line = plane.lines.add(id=number, display_id=number, name=thread, timestamp_ns=begins[thread])
        line.events.extend(events)


def _add_chip(space: Any, device: Device, operations: list[_Operation], facts: Instructions) -> None:
    plane = _Plane(space, f"/device:{PLATFORM.upper()}:{device.id}")
    properties = {"device_type_string": device.kind, "slice": f"slice {device.slice_index}", "host": name_of(device)}
    for name, value in {**properties, "coords": str(device.coords), "global_device_id": device.id}.items():
        plane.describe(plane.proto, name, value)
    steps, modules, ops = (plane.line(number, name) for number, name in enumerate(_LINES, start=1))
    templates: dict[tuple[str, str], Any] = {}
    runs: dict[tuple[int, str], list[int]] = {}
    operations.sort()
    for start, end, op, module, run in operations:
        extent = runs.setdefault((run, module), [start, end])
        extent[1] = max(extent[1], end)
        template = templates.get((module, op))
        if template is None:
            template = templates[module, op] = _template(plane, module, op, facts)
        event = ops.events.add()
        event.CopyFrom(template)
        event.offset_ps, event.duration_ps = start, end - start
        plane.describe(event, "run_id", run)
    for number, ((run, module), (start, end)) in enumerate(runs.items()):
        for line, name, stats in ((modules, module, {}), (steps, str(number), {"step_num": number})):
            event = line.events.add(metadata_id=plane.event(name), offset_ps=start, duration_ps=end - start)
            for each, value in {"run_id": run, **stats}.items():
                plane.describe(event, each, value)


def _template(plane: _Plane, module: str, op: str, facts: Instructions) -> Any:
    """Return an event of an operation, without its time."""
    # XProf counts only operations of which it knows these two numbers.
    numbers = {"program_id": crc32(module.encode()), "symbol_id": crc32(op.encode())}
    properties: dict[str, Any] = {"hlo_module": module, **numbers, **facts.get((module, op), {})}
    template = messages.XEvent(metadata_id=plane.event(op, properties))
    # A TPU's profiler says these once for an operation; but jax.profiler.ProfileData shows only what events say.
    for name in ("hlo_category", "tf_op", "source"):
        if name in properties:
            plane.describe(template, name, properties[name])
    return template


class _Plane:
    """A plane that is being written, with its tables of names."""

    def __init__(self, space: Any, name: str) -> None:
        self.proto = space.planes.add(id=len(space.planes) + 1, name=name)
        self._stats: dict[str, int] = {}
        self._names: dict[Any, int] = {}

    def line(self, number: int, name: str) -> Any:
        """Add a line."""
        return self.proto.lines.add(id=number, display_id=number, name=name)

    def event(self, name: str, properties: Mapping[str, Any] | None = None) -> int:
        """Return the number of a name for events.

        Args:
          properties: What is known of all of them; another module's operation of the same name is another one.
        """
        key = (name, (properties or {}).get("hlo_module"))
        number = self._names.get(key)
        if number is None:
            number = self._names[key] = len(self._names) + 1
            metadata = self.proto.event_metadata[number]
            metadata.id, metadata.name, metadata.display_name = number, (properties or {}).get(_TEXT, name), name
            for each, value in (properties or {}).items():
                self.describe(metadata, each, value)
        return number

    def describe(self, message: Any, name: str, value: Any) -> None:
        """Add a statistic."""
        stat = message.stats.add(metadata_id=self._number(name))
        if isinstance(value, str):
            # Texts repeat, so they are names of the table too.
            stat.ref_value = self._number(value)
        else:
            stat.int64_value = value

    def _number(self, name: str) -> int:
        number = self._stats.get(name)
        if number is None:
            number = self._stats[name] = len(self._stats) + 1
            metadata = self.proto.stat_metadata[number]
            metadata.id, metadata.name = number, name
        return number
