"""The accelerator catalogue."""

import pytest

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError


def test_an_instance_type_knows_its_chips_and_hosts():
    small, large, torus = map(tpu.parse_instance_type, ("tpuv6e:2x2", "tpuv5e:4x8", "tpuv5:8x8x8"))
    assert (small.chips, small.hosts, small.chips_per_host) == (4, 1, 4)
    assert (large.chips, large.hosts, large.chips_per_host) == (32, 8, 4)
    assert (torus.chips, torus.hosts) == (512, 128)
    # A slice smaller than a machine.
    tiny = tpu.parse_instance_type("tpuv6e:1x1")
    assert (tiny.chips, tiny.hosts, tiny.chips_per_host) == (1, 1, 1)


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("tpuv6e:1x1", "ct6e-standard-1t"),
        ("v6e-1", "ct6e-standard-1t"),
        ("ct6e-standard-4t:1x1", "ct6e-standard-4t"),
        ("tpuv6e1t:2x4", "ct6e-standard-8t"),
        ("tpuv5e:1x1", "ct5lp-hightpu-1t"),
        ("tpuv5:1x1x1", "ct5p-hightpu-1t"),
        ("tpuv5:2x1x1", "ct5p-hightpu-2t"),
        ("tpuv5:2x2x1", "ct5p-hightpu-4t"),
        ("tpu7:1x1x1", "tpu7-standard-1t"),
        ("tpu7:4x4x4", "tpu7-standard-4t"),
        ("tpu7x:1x1x1", "tpu7x-standard-1t"),
        ("tpu7x:8x8x8", "tpu7x-standard-4t"),
    ],
)
def test_a_topology_has_the_machine_that_it_fills(text, machine):
    assert tpu.parse_instance_type(text).machine.name == machine


def test_every_machine_is_known_by_all_its_names():
    for machine in tpu.MACHINES:
        for name in (machine.name, machine.version, machine.name.partition("-")[0], machine.accelerator):
            for topology in machine.topologies:
                for text in (f"{name}:{topology}", f"{name}-{topology}"):
                    assert tpu.parse_instance_type(text).topology == topology
        for topology in machine.topologies:
            assert tpu.parse_instance_type(f"{machine.name}:{topology}").machine is machine
            assert tpu.canonical(f"{machine.name}:{topology}") == f"{machine.version}:{topology}"
    assert tpu.canonical("x:2x2") == "x:2x2"


@pytest.mark.parametrize("topology", ["2x2", "2x2x1", "3x3", "", "4x4x4", "1x1"])
@pytest.mark.parametrize("version", ["tpu7xx", "tpu8", "tpuv6", "tpuv5x", "tpuv4e", "tpuv5ee", "tpuv6e1"])
def test_what_is_suggested_is_valid(version, topology):
    with pytest.raises(ConfigError) as caught:
        tpu.parse_instance_type(f"{version}:{topology}")
    suggested = caught.value.hint.partition("Did you mean ")[2].partition("?")[0]
    assert str(tpu.parse_instance_type(suggested)) == suggested


@pytest.mark.parametrize("text", ["v6e-8", "v5p-1024", "v5p-2", "tpu7x-2048"])
def test_each_meaning_of_an_ambiguous_name_is_valid(text):
    with pytest.raises(ConfigError, match="is ambiguous") as caught:
        tpu.parse_instance_type(text)
    meant = [each.partition(" (")[0] for each in str(caught.value).partition(": ")[2].split(" or ")]
    assert len(meant) > 1
    assert [str(tpu.parse_instance_type(each)) for each in meant] == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("v6e:2x2", "tpuv6e:2x2"),
        ("v6e-4", "tpuv6e:2x2"),
        ("tpuv6e-4", "tpuv6e:2x2"),
        ("v6e-16", "tpuv6e:4x4"),
        ("v5litepod-16", "tpuv5e:4x4"),
        ("v5p-8", "tpuv5:2x2x1"),
        ("v4-16", "tpuv4:2x2x2"),
        ("ct5p-hightpu-4t:2x2x1", "tpuv5:2x2x1"),
        # What the Cluster Toolkit writes for Pathways: the family of a machine.
        ("ct5p:4x4x4", "tpuv5:4x4x4"),
        ("ct6e:2x2", "tpuv6e:2x2"),
        ("ct6e-standard-4t:2x2", "tpuv6e:2x2"),
        ("ct6e:2x4", "tpuv6e:2x4"),
        ("ct5lp:2x4", "tpuv5e:2x4"),
        ("ct4p:2x2x1", "tpuv4:2x2x1"),
        ("v5litepod:2x4", "tpuv5e:2x4"),
        # What it calls machines.
        ("v5p-1", "tpuv5:1x1x1"),
        ("v5p-4", "tpuv5:2x2x1"),
        ("v5litepod-1", "tpuv5e:1x1"),
        ("v6e-1", "tpuv6e:1x1"),
        # What xpk calls slices.
        ("v5p-4x4x8", "tpuv5:4x4x8"),
        ("v5p-256", "tpuv5:4x4x8"),
        ("v6e-2x2", "tpuv6e:2x2"),
        ("tpu7x-16", "tpu7x:2x2x2"),
        ("v7x-16", "tpu7x:2x2x2"),
        ("tpu7x-4x4x12", "tpu7x:4x4x12"),
        ("tpu7-2", "tpu7:1x1x1"),
        ("tpu7-4x8x8", "tpu7:4x8x8"),
        # Labels of nodes.
        ("tpu-v6e-slice:2x2", "tpuv6e:2x2"),
        ("tpu-v5-lite-podslice:4x4", "tpuv5e:4x4"),
        ("tpu-v5p-slice:2x2x1", "tpuv5:2x2x1"),
    ],
)
def test_names_that_people_use_are_understood(text, meant):
    assert str(tpu.parse_instance_type(text)) == meant
    assert tpu.parse_instances(f"{text}=3") == {meant: 3}


@pytest.mark.parametrize(
    "text",
    [
        '{"tpuv6e:2x2": 2}',
        "{'tpuv6e:2x2': 2}",
        "{tpuv6e:2x2: 2}",
        ' {"v6e-4": 2, } ',
    ],
)
def test_a_dictionary_written_out_is_understood(text):
    assert tpu.parse_instances(text) == {"tpuv6e:2x2": 2}


@pytest.mark.parametrize(
    ("text", "word", "hint"),
    [
        ("v6e-8", "tpuv6e:2x4 (2 hosts of 4 chips) or tpuv6e1t:2x4 (1 host of 8 chips)", "tpuv6e:2x4"),
        ("v6e-5", "There is no slice v6e-5", "tpuv6e:2x2 (4 chips)"),
        ('tpuv6e:2x2": 2}', "no topology", "2x2"),
        ('tpu6e:2x2": 2}', "Unknown TPU version", "tpuv6e:2x2?"),
        ("tpuv6:2x2", "Unknown TPU version", "tpuv6e:2x2"),
        ("tpuv6e:3x3", "no topology '3x3'", "2x2"),
        ("tpuv6e", "needs a topology", "2x2"),
        ("tpuv5:4x6x8", "no topology", "multiples of 4"),
        ("tpu7:8x8x8", "no topology", "multiples of 4"),
        ("tpu7x:2x2", "no topology", "2x2x1"),
        ("v5p-100", "There is no slice v5p-100", "tpuv5:2x2x1 (4 chips)"),
        ("ct6e-standard-4t", "needs a topology", "2x2"),
        ("", "Unknown TPU version", "Known versions"),
    ],
)
def test_a_wrong_instance_type_is_named_with_what_would_be_right(text, word, hint):
    with pytest.raises(ConfigError) as caught:
        tpu.parse_instance_type(text)
    assert word in str(caught.value)
    assert hint in caught.value.hint


def test_instances_are_read_and_written():
    assert tpu.parse_instances("tpuv6e:2x2=2, tpuv5e:4x4") == {"tpuv6e:2x2": 2, "tpuv5e:4x4": 1}
    assert tpu.format_instances({"tpuv6e:2x2": 2}) == "tpuv6e:2x2=2"


@pytest.mark.parametrize(
    "text",
    [
        *("tpuv6e:2x2=0", "tpuv6e:2x2=-1", "tpuv6e:2x2=two", "tpuv6e:2x2=", "", "tpuv6e:2x2,tpuv6e:2x2"),
        *("{}", "{:}", "{tpuv6e:2x2}", f"tpuv6e:2x2={'9' * 5000}", "tpuv6e:2x2=2147483648"),
    ],
)
def test_wrong_counts_are_refused(text):
    with pytest.raises(ConfigError):
        tpu.parse_instances(text)
