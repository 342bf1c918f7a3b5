"""Sorting what XLA did on CPUs into the planes of chips and hosts."""

from __future__ import annotations

import pytest

from pathways_jupyter.base.tpu import parse_instance_type
from pathways_jupyter.local.pathways.ifrt import messages
from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.plugins import planes


@pytest.fixture
def devices():
    """Two slices of one host with four chips each."""
    return Devices([parse_instance_type("tpuv6e:2x2")] * 2)


def raw(*threads):
    """A profile as jaxlib writes it: for each thread its events, as name, begin, end and statistics."""
    space = messages.XSpace()
    space.planes.add(name="/host:metadata")
    plane = space.planes.add(name="/host:CPU")
    names, stats = {}, {}
    for number, events in enumerate(threads):
        line = plane.lines.add(id=number, name=f"thread {number}", timestamp_ns=1)
        for name, begin, end, about in events:
            metadata = names.setdefault(name, len(names) + 1)
            plane.event_metadata[metadata].name = name
            event = line.events.add(metadata_id=metadata, offset_ps=begin, duration_ps=end - begin)
            for each, value in about.items():
                key = stats.setdefault(each, len(stats) + 1)
                plane.stat_metadata[key].name = each
                event.stats.add(metadata_id=key, **{"str_value" if isinstance(value, str) else "int64_value": value})
    return space.SerializeToString()


def op(name, begin, end, device, run=7):
    return (name, begin, end, {"hlo_op": name, "hlo_module": "jit_f", "device_ordinal": device, "run_id": run})


def name_of(plane, event):
    metadata = plane.event_metadata[event.metadata_id]
    return metadata.display_name or metadata.name


def read(space):
    """All events of a profile: by plane and line their names, begins and ends."""
    return {
        (plane.name, line.name): [
            (name_of(plane, each), each.offset_ps, each.offset_ps + each.duration_ps) for each in line.events
        ]
        for plane in space.planes
        for line in plane.lines
        if line.events
    }


def test_operations_become_those_of_their_chip_also_inside_others_and_from_several_threads(devices):
    content = raw(
        [op("while", 100, 900, 5), op("add", 200, 300, 5), op("add", 400, 500, 5), op("tanh", 1000, 1100, 4, run=8)],
        [op("copy", 950, 980, 5), op("while", 2000, 2100, 5, run=8)],
    )
    found = planes.by_host(content, devices, {})
    assert list(found) == ["slice-0-host-0", "slice-1-host-1", "proxy"]
    assert read(found["slice-0-host-0"]) == {}
    assert read(found["slice-1-host-1"]) == {
        ("/device:TPU:4", "Steps"): [("0", 2000, 2100)],
        ("/device:TPU:4", "XLA Modules"): [("jit_f", 2000, 2100)],
        ("/device:TPU:4", "XLA Ops"): [("tanh", 2000, 2100)],
        ("/device:TPU:5", "Steps"): [("0", 1100, 1980), ("1", 3000, 3100)],
        ("/device:TPU:5", "XLA Modules"): [("jit_f", 1100, 1980), ("jit_f", 3000, 3100)],
        ("/device:TPU:5", "XLA Ops"): [
            ("while", 1100, 1900),
            ("add", 1200, 1300),
            ("add", 1400, 1500),
            ("copy", 1950, 1980),
            ("while", 3000, 3100),
        ],
    }


def test_other_events_are_of_the_host_whose_chip_they_are_for_and_else_of_the_proxy(devices):
    content = raw(
        [
            ("[6] Execute", 0, 50, {"global_device_id": 6}),
            ("Handle inputs", 10, 20, {}),
            ("ThreadpoolListener::Record", 20, 20, {}),
            op("all-reduce", 100, 200, 1),
            ("Wait: pending_threads=1/8", 110, 190, {}),
            ("end: all-reduce", 201, 201, {}),
            ("collect", 300, 310, {}),
            # A CPU device beside a chip is of its host, and no chip.
            op("copy", 400, 410, 8 + 2),
        ]
    )
    found = {host: read(space) for host, space in planes.by_host(content, devices, {}).items()}
    host = ("/host:CPU", "thread 0")
    assert [name for name, _, _ in found["slice-1-host-1"][host]] == ["[6] Execute", "Handle inputs"]
    assert [name for name, _, _ in found["slice-0-host-0"][host]] == ["Wait: pending_threads=1/8", "copy"]
    assert [name for name, _, _ in found["proxy"][host]] == ["collect"]
    space = planes.by_host(content, devices, {})["slice-0-host-0"]
    planes.drop_host(space)
    assert host not in read(space)
    assert ("/device:TPU:1", "XLA Ops") in read(space)


def test_what_xla_says_of_an_operation_is_known_by_its_program_and_name():
    import jax

    def scoped(x):
        with jax.named_scope("layer"):
            return jax.numpy.tanh(x) * 2

    compiled = jax.jit(scoped).lower(jax.numpy.ones((4, 4))).compile()
    known = planes.instructions([compiled.runtime_executable()])
    (stats,) = [
        each for (module, _), each in known.items() if module == "jit_scoped" and "fusion" in each["hlo_category"]
    ]
    assert stats["hlo_category"] == "loop fusion"
    assert stats["long_name"].startswith("%")
    assert stats["tf_op"].startswith("jit(scoped)/layer/")
    file, _, line = stats["source"].rpartition(":")
    assert file == __file__
    assert int(line) > 0
