"""The picture of a training run, and what other programs get of it."""

from __future__ import annotations

import itertools
import json
import math
import time
import xml.etree.ElementTree as ElementTree

import pytest

from pathways_jupyter.elastic import export
from pathways_jupyter.elastic.goodput import SnapshotCost
from pathways_jupyter.elastic.record import Kind, Record
from pathways_jupyter.render import elastic as render
from pathways_jupyter.render import text


@pytest.fixture
def record():
    """Three slices, a loss before step 5, and two slices from then on."""
    made = Record()
    made.begin(steps=10)
    made.total_slices = 3
    for number in range(5):
        made.step(number, {"loss": 5.0 - number, "<acc>": 0.1 * number}, slices=3, losses=0)
    made.slice_changed(1, False, "Slice 1 is down.")
    made.add(Kind.DETECTED, "Slice 1 lost before step 5 was complete.", step=5, slices=(0, 2))
    made.add(Kind.RESTORED, "The state before step 4 is on slices 0, 2.", step=4, slices=(0, 2), repeated=1)
    made.step(4, {"loss": math.nan, "<acc>": 0.5}, slices=2, losses=1)
    return made


def test_the_run_is_drawn_with_its_slices_a_metric_its_time_and_its_events(record):
    view = render.view(record)
    assert "Elastic training: 5 of 10 steps" in view.html
    one = Record()
    one.begin(steps=1)
    assert "Elastic training: 0 of 1 step<" in render.view(one).html
    assert "slices: 3 at first, now 2; between 2 and 3" in view.html
    assert "loss: 5 at first, now 2; between 2 and 5" in view.html, "what is not finite cannot be drawn"
    assert "acc" not in view.html
    assert view.html.count("<svg") == 2
    assert view.html.count("<line") == 2 * 3
    assert "Slice 1 lost before step 5 was complete." in view.html
    head, *events = view.text.splitlines()
    assert "recovering; 2 slices in use" in head
    assert "1 loss survived" in head
    assert [line[0] for line in events] == ["✗", "✗", "!"]


def test_a_run_in_a_file_goes_on_as_of_a_time_and_has_ended_at_its_end(record, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: record.begun + 60)
    assert f"1 loss survived, as of {text.moment(record.begun + 60)}" in render.view(record).html
    record.end()
    monkeypatch.setattr(time, "time", lambda: record.begun + 600)
    assert f"as of {text.moment(record.begun + 60)}" in render.view(record).html


def test_what_each_snapshot_cost_is_shown_and_exported(record):
    costs = record.goodput.snapshots
    costs += [SnapshotCost(10 * number, 2_000_000, waited=0.25, copied=0.5) for number in range(6)]
    costs[-1].written, costs[-1].writer = 1.5, "hosts"
    lines = [line.split("  ") for line in render.view(record).text.splitlines()]
    shown = [[cell.strip() for cell in line if cell] for line in lines if any("MB" in cell for cell in line)]
    assert [line[0] for line in shown] == ["10", "20", "30", "40", "50"]
    assert shown[0][1:] == ["2.0 MB", "0.250 s", "0.500 s"]
    assert shown[-1][1:] == ["2.0 MB", "0.250 s", "0.500 s", "1.500 s", "hosts"]
    exported = json.loads(export.to_json(record))["snapshots"]
    costs = {"step": 50, "nbytes": 2_000_000, "waited": 0.25, "copied": 0.5, "written": 1.5, "writer": "hosts"}
    assert exported[-1] == costs


def test_any_metric_can_be_drawn_and_names_do_no_harm(record):
    html = render.view(record, ["<acc>", "loss", "none"]).html
    assert html.count("<svg") == 3
    assert "&lt;acc&gt;: 0 at first, now 0.5" in html
    # Well-formed, so that no name or message has become markup.
    ElementTree.fromstring(html)


def test_before_the_first_step_there_is_no_curve():
    record = Record()
    record.begin(steps=10)
    record.total_slices = 3
    view = render.view(record)
    assert "<svg" not in view.html
    assert "no step is complete yet" in view.text
    record.end()
    assert "stopped" in render.view(record).text


def test_the_export_is_json_that_every_reader_takes(record):
    def never(constant):
        raise AssertionError(constant)

    value = json.loads(export.to_json(record), parse_constant=never)
    assert [event["kind"] for event in value["events"]] == ["slice-down", "detected", "restored"]
    assert [step["slices"] for step in value["steps"]] == [3, 3, 3, 3, 2]
    assert value["steps"][-1]["metrics"] == {"loss": None, "<acc>": 0.5}
    assert "STEP" in value["goodput"]


def test_a_curve_of_any_length_stays_small_and_keeps_its_ends():
    record = Record()
    for number in range(10_001):
        record.step(number, {"loss": float(number)}, slices=1, losses=0)
    steps = [each.step for each in record.curve("loss", 50)]
    assert len(steps) <= 51
    assert (steps[0], steps[-1]) == (0, 10_000)
    gaps = {after - before for before, after in itertools.pairwise(steps[:-1])}
    assert len(gaps) == 1
    assert [each.step for each in record.curve("loss", 1)][-1] == 10_000
    assert record.curve("other") == []
