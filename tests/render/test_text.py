"""Times, counts and devices in words."""

import pytest

from pathways_jupyter.render import text


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0.0 s"), (0.44, "0.4 s"), (12.4, "12 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"),
     (273_600, "3 d 4 h")],
)  # fmt: skip
def test_a_duration_is_said_as_people_say_it(seconds, said):
    assert text.duration(seconds) == said


def test_instances_are_counted_in_slices_and_chips():
    assert text.instances({"tpuv6e:2x2": 1}) == "1 slice of tpuv6e:2x2 (4 chips)"
    assert text.instances({"tpuv6e:2x2": 2, "tpuv5e:4x4": 1}) == (
        "2 slices of tpuv6e:2x2 and 1 slice of tpuv5e:4x4 (24 chips)"
    )
