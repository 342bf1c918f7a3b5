import pytest

from pathways_jupyter.service.placement import Placement, parse

NEW = "I1208 20:10:04.992524 12 x.cc:1] Transition slice 1 (tpuv6e:2x2) unplaced -> placed on pathways-cluster-worker-0"
OLD = "I1208 20:10:04 12 x.cc:1] Transition slice 0 (tpuv6e:2x2) unplaced -> placed"


@pytest.mark.parametrize("line", ["", "Signaling to RM", "slice 1 placed", "Transition slice x unplaced -> placed"])
def test_other_lines_are_ignored(line):
    assert parse(line) is None


def test_a_slice_that_goes_and_comes_back_is_placed_where_it_is_now():
    placement = Placement()
    for line in (OLD, NEW):
        placement.feed(line)
    assert placement.slices == {0: "", 1: "pathways-cluster-worker-0"}
    placement.feed("Transition slice 1 (tpuv6e:2x2) placed -> unplaced")
    assert placement.placed == 1
    placement.feed(NEW.replace("worker-0", "worker-7"))
    assert placement.slices[1] == "pathways-cluster-worker-7"


def test_slices_are_held_since_the_first_one_was_placed_by_the_clock_of_kubernetes():
    placement = Placement()
    placement.feed(f"2026-01-01T08:00:00.5Z {OLD.replace('placed', 'requested')}")
    assert placement.since == 0
    placement.feed(f"2026-01-01T08:00:10.123456789Z {OLD}")
    placement.feed(f"2026-01-01T08:00:20Z {NEW}")
    assert placement.since == pytest.approx(1767254410.123456)
