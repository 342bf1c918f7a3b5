"""Times, counts and devices in words."""

import re

import pytest

from pathways_jupyter.base.text import size
from pathways_jupyter.render import parts, text, view


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


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 bytes"), (1, "1 byte"), (812, "812 bytes"), (1000, "1.0 kB"), (3_149_000, "3.1 MB"), (5e12, "5000.0 GB")],
)
def test_a_size_is_never_rounded_to_nothing(number, said):
    assert size(number) == said


def test_a_number_keeps_its_unit_and_a_long_cell_is_not_broken_after_each_word():
    shown = view.page(
        parts.table(("for", "why"), [[parts.muted("3 min 05 s"), "the slices of others are awaited for 12 s"]]).html
    )
    short, long = re.findall(r"<td[^>]*>", shown)
    assert "pw-long" in long
    assert "pw-long" not in short
    assert "awaited for 12&nbsp;s" in shown
    word = parts.table(("reason",), [["StartupPolicyCompleted"], ["gs" * 40]]).html
    assert re.findall(r"<td[^>]*>", word) == ["<td>", '<td class="pw-long">'], "a word is broken only where it must be"
    # What is not long stays on its line; what is long keeps a width at which lines hold several words.
    assert re.search(r"table\.pw-table td \{[^}]*white-space: nowrap", shown)
    assert re.search(r"td\.pw-long \{[^}]*min-width: 9em", shown)
