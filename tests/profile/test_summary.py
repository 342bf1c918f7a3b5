"""Summary of a trace of known content: whose time, spent on what, and by which operations."""

import dataclasses

import jax
import pytest

from pathways_jupyter.profile import xplane
from pathways_jupyter.profile.summary import BINS, ChipActivity, summarize
from pathways_jupyter.render import profile

MICROSECOND = 1_000_000
"""In a file's unit, picoseconds."""
METADATA = """
  event_metadata { key: 1 value { id: 1 name: "%while.1 = f32[2] while(...)"
    stats { metadata_id: 1 str_value: "while" } } }
  event_metadata { key: 2 value { id: 2 name: "%fusion.1 = f32[2] fusion(...)"
    stats { metadata_id: 1 str_value: "convolution fusion" } stats { metadata_id: 2 ref_value: 3 }
    stats { metadata_id: 4 str_value: "/home/jane/train.py:12" } } }
  event_metadata { key: 5 value { id: 5 name: "%all-reduce.1 = f32[2] all-reduce(...)" } }
  event_metadata { key: 6 value { id: 6 name: "jit_step(123)" } }
  stat_metadata { key: 1 value { id: 1 name: "hlo_category" } }
  stat_metadata { key: 2 value { id: 2 name: "tf_op" } }
  stat_metadata { key: 3 value { id: 3 name: "jit(step)/layer/dot_general:" } }
  stat_metadata { key: 4 value { id: 4 name: "source" } }
  stat_metadata { key: 7 value { id: 7 name: "slice" } }
  stats { metadata_id: 7 str_value: "slice 0" }
"""


def chip(number, operations, modules=()):
    """A chip's plane; each event is (metadata id, begin, end) in microseconds."""

    def line(name, events):
        written = (
            f"events {{ metadata_id: {kind} offset_ps: {begin * MICROSECOND} "
            f"duration_ps: {(end - begin) * MICROSECOND} }}"
            for kind, begin, end in events
        )
        return f'lines {{ name: "{name}" {" ".join(written)} }}'

    lines = line("XLA Ops", operations) + line("XLA Modules", modules)
    return f'planes {{ name: "/device:TPU:{number}" {lines} {METADATA} }}'


def transfer(begin, end):
    return (
        f'planes {{ name: "/host:CPU" lines {{ events {{ metadata_id: 1 offset_ps: {begin * MICROSECOND} '
        f"duration_ps: {(end - begin) * MICROSECOND} }} }} "
        'event_metadata { key: 1 value { id: 1 name: "TransferToDevice" } } }'
    )


def read(*planes):
    return xplane.read(jax.profiler.ProfileData.text_proto_to_serialized_xspace("\n".join(planes)))


def test_time_is_computing_network_input_or_waiting_for_the_host():
    # 0-40 a loop with a body in it, 40-60 network, 60-70 data came, 70-90 nothing, 90-100 computing.
    operations = [(1, 0, 40), (2, 10, 30), (5, 40, 60), (2, 90, 100)]
    summary = summarize([read(chip(0, operations), transfer(55, 70))], "gs://b/t")
    assert summary.seconds == pytest.approx(100e-6)
    assert summary.shares == pytest.approx(
        {ChipActivity.COMPUTING: 0.5, ChipActivity.NETWORK: 0.2, ChipActivity.INPUT: 0.1, ChipActivity.HOST: 0.2}
    )
    (only,) = summary.chips
    assert only.shares == pytest.approx(summary.shares)
    assert sum(only.computing) / BINS == pytest.approx(0.5)
    assert sum(only.network) / BINS == pytest.approx(0.2)


def test_an_operation_costs_its_own_time_and_not_that_of_what_is_inside_it():
    summary = summarize([read(chip(0, [(1, 0, 40), (2, 10, 20), (2, 25, 30)]))], "gs://b/t")
    assert [(each.name, each.count, round(each.seconds * 1e6)) for each in summary.operations] == [
        ("while.1", 1, 25),
        ("fusion.1", 2, 15),
    ]
    fusion = summary.operations[1]
    assert fusion.share == pytest.approx(15 / 40)
    assert (fusion.scope, fusion.source) == ("jit(step)/layer/dot_general", "/home/jane/train.py:12")
    assert fusion.category == "convolution fusion"


def test_chips_of_all_files_are_in_one_picture_in_the_order_of_their_numbers():
    files = [read(chip(10, [(2, 0, 10)]), chip(2, [(2, 0, 5)])), read(chip(1, [(2, 5, 10)], [(6, 0, 10)]))]
    summary = summarize(files, "gs://b/t")
    assert [each.name for each in summary.chips] == ["TPU:1 slice 0", "TPU:2 slice 0", "TPU:10 slice 0"]
    assert [each.shares[ChipActivity.COMPUTING] for each in summary.chips] == pytest.approx([0.5, 0.5, 1.0])
    (module,) = summary.modules
    assert (module.name, module.runs, module.seconds) == ("jit_step", 1, pytest.approx(10e-6))


def test_planes_of_a_chips_sparse_cores_are_neither_chips_nor_transfers():
    beside = chip("0 SparseCore 1", [(2, 90, 100)], [(6, 0, 1000)])
    custom = transfer(0, 50).replace("/host:CPU", "/device:CUSTOM:Megascale Trace")
    summary = summarize([read(chip(0, [(2, 0, 40), (2, 60, 100)]), beside, custom)], "gs://b/t")
    assert [each.name for each in summary.chips] == ["TPU:0 slice 0"]
    assert summary.seconds == pytest.approx(100e-6)
    assert summary.shares[ChipActivity.COMPUTING] == pytest.approx(0.8)
    assert summary.shares[ChipActivity.INPUT] == 0


def test_what_is_no_trace_is_refused():
    # The last one has a number where a plane would be.
    for content in (b"not a trace", b"\x0a\xff", b"<html></html>", b"\x08\x01"):
        with pytest.raises(ValueError, match="not a trace"):
            xplane.read(content)


def test_the_picture_says_the_same_as_text_and_as_html():
    summary = summarize([read(chip(0, [(2, 0, 50), (5, 50, 60)], [(6, 0, 100)]))], "gs://b/t/<x>")
    view = profile.view(summary)
    assert view.text.splitlines()[:3] == [
        "Profile of 1 chip for 100 µs: busy 60%, jit_step ran 1 time, 100 µs each",
        "computing 50.0%, network between chips 10.0%, waiting for input 0.0%, waiting for the host 40.0%.",
        "  TPU:0 slice 0  computing 50%  network between chips 10%  waiting for the host 40%",
    ]
    for words in ("jit(step)/layer/dot_general", "jane/train.py:12", "83.3%", "gs://b/t/"):
        assert words in view.text
        assert words in view.html
    assert "<x>" not in view.html


def test_a_line_of_another_kernels_cell_is_one_of_a_cell_and_no_file():
    summary = summarize([read(chip(0, [(2, 0, 50)]))], "gs://b/t")
    (operation,) = summary.operations
    traced = dataclasses.replace(operation, source="/tmp/ipykernel_123/3405691582.py:20")
    view = profile.view(dataclasses.replace(summary, operations=(traced,)))
    assert "a cell, line 20" in view.text
    assert "ipykernel_" not in view.text


def test_a_trace_in_which_nothing_ran_says_so():
    view = profile.view(summarize([read(transfer(0, 10))], "gs://b/t"))
    assert "Nothing ran on the chips" in view.text
    assert "Nothing ran on the chips" in view.html


def test_of_many_chips_some_are_drawn_and_the_rest_is_counted():
    view = profile.view(summarize([read(*(chip(number, [(2, 0, 10)]) for number in range(40)))], "gs://b/t"))
    assert "8 more chips are not drawn." in view.text
    assert "8 more chips are not drawn." in view.html
    assert view.html.count("<path") == 2 * 32
