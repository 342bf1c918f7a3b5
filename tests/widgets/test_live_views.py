"""Pictures in a notebook: live while there is something to follow, and true when they are read later."""

import json
import os
import signal

import pytest


@pytest.fixture
def connected(cleared_notebook, cluster):
    cleared_notebook.connect("--local --tpu tpuv6e:2x2=2 --wait 60", timeout=110)
    return cleared_notebook


def view_of(cell):
    """The cell's only output, which keeps being updated."""
    assert cell.status == "ok", cell.shown
    (output,) = cell.outputs
    return output["data"]


@pytest.mark.thorough
def test_an_output_holds_html_and_text_and_nothing_that_hides_them(connected):
    for command in ("slices", "events", "status", "sessions"):
        assert set(view_of(connected.run(f"%pathways {command}"))) == {"text/plain", "text/html"}, command


@pytest.mark.thorough
def test_a_map_shows_what_changes_after_it_was_drawn(connected, notebook):
    connected.run("%pathways disconnect")
    connected.connect("--local --tpu tpuv6e:2x2=1", timeout=110)
    cell = connected.run("%pathways slices")
    assert "1 free" in view_of(cell)["text/plain"]
    seen = len(connected.seen)
    notebook.connect("--local --tpu tpuv6e:2x2=1 --wait 60", timeout=110)
    connected.wait_for("0 free", since=seen)
    seen = len(connected.seen)
    notebook.run("%pathways disconnect")
    connected.wait_for("1 free", since=seen)
    assert "1 free" in view_of(cell)["text/html"]


def test_the_last_pictures_of_a_session_are_of_the_session_and_say_that_it_ended(connected):
    cells = [connected.run("%pathways slices") for _ in range(3)]
    connected.run("%pathways disconnect")
    for last in map(view_of, cells):
        assert last["text/plain"].count("this notebook") == 2
        assert "The session has ended." in last["text/html"]


def test_the_newest_display_is_the_live_one_and_a_fourth_map_ends_the_first(connected):
    first, *others = [connected.run("%pathways slices") for _ in range(4)]
    assert "newer maps were opened" in view_of(first)["text/html"]
    assert not any("newer maps" in view_of(each)["text/html"] for each in others)


def test_a_timeline_shows_what_happens_after_it_was_drawn(connected):
    cell = connected.run("%pathways events")
    before = view_of(cell)["text/plain"].count("\n")
    seen = len(connected.seen)
    connected.run("%pathways reconnect --yes", timeout=110)
    # The command shows its own progress in the same words: what counts is the timeline.
    drawn = connected.wait_for("The tunnel is open.", since=seen)
    while drawn != view_of(cell)["text/plain"] or drawn.count("\n") <= before:
        seen = connected.seen.index(drawn, seen) + 1
        drawn = connected.wait_for("The tunnel is open.", since=seen)
    seen = len(connected.seen)
    connected.run("%pathways disconnect")
    assert "Removing the proxy." in connected.wait_for("The session has ended.", since=seen)


def test_an_assigned_map_has_the_typed_value_and_shows_itself_later(connected):
    assert connected.run("found = %pathways slices\nservices = found.value").outputs == []
    assert "2" in connected.run("print(len(services[0].slices))").text
    assert view_of(connected.run("found"))["text/plain"].count("this notebook") == 2


@pytest.mark.thorough
def test_a_picture_does_not_say_that_the_session_ended_when_its_supervisor_died(connected, machine):
    cells = [connected.run(f"%pathways {command}") for command in ("slices", "events")]
    (record,) = json.loads(machine.cli("sessions", "--json").stdout)
    seen = len(connected.seen)
    os.kill(record["pid"], signal.SIGKILL)
    while not all("No longer live" in view_of(cell)["text/html"] for cell in cells):
        seen = connected.seen.index(connected.wait_for("supervisor has died", since=seen), seen) + 1
    assert not any("The session has ended" in view_of(cell)["text/html"] for cell in cells)
    assert connected.run("%pathways reconnect", timeout=110).status == "ok"
