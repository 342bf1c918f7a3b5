"""The accelerator catalogue."""

import pytest

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError


def test_an_instance_type_knows_its_chips_and_hosts():
    small, large, torus = map(tpu.parse_instance_type, ("tpuv6e:2x2", "tpuv5e:4x8", "tpuv5:8x8x8"))
    assert (small.chips, small.hosts, small.chips_per_host) == (4, 1, 4)
    assert (large.chips, large.hosts, large.chips_per_host) == (32, 8, 4)
    assert (torus.chips, torus.hosts) == (512, 128)


def test_a_slice_smaller_than_a_machine_has_one_host_with_fewer_chips():
    tiny = tpu.parse_instance_type("tpuv6e:1x1")
    assert (tiny.chips, tiny.hosts, tiny.chips_per_host) == (1, 1, 1)


def test_a_machine_type_is_another_spelling_of_its_version():
    assert str(tpu.parse_instance_type("ct6e-standard-4t:2x2")) == "tpuv6e:2x2"


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
