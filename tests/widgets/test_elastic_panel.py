"""The panel of elastic training follows one run, and shows the training again after a short call."""

from __future__ import annotations

import pytest

from pathways_jupyter.elastic.record import Record
from pathways_jupyter.elastic.run_registry import RUNS, RunRegistry
from pathways_jupyter.widgets.live_views import ElasticPanel


class Shell:
    """An IPython shell whose displays go nowhere."""

    class display_pub:
        @staticmethod
        def publish(data, *, transient, update):
            assert data["text/plain"]


@pytest.fixture(autouse=True)
def first_in_process(monkeypatch):
    for name, value in vars(RunRegistry()).items():
        monkeypatch.setattr(RUNS, name, value)


def opened() -> ElasticPanel:
    panel = ElasticPanel(Shell())
    panel._ipython_display_()
    return panel


def run(steps: int) -> Record:
    record = Record()
    RUNS.begin(record, steps=steps)
    for step in range(steps):
        record.step(step, {}, slices=1, losses=0)
    return record


def test_a_panel_shows_a_run_before_its_first_step_is_complete() -> None:
    panel = opened()
    assert "No elastic training has run" in panel.text
    RUNS.begin(Record(), steps=40)
    assert "0 of 40 steps; training; no step is complete yet" in panel.text


def test_the_panel_of_a_training_stays_what_it_is_when_a_short_call_follows() -> None:
    panel = opened()
    RUNS.end(run(40))
    demo = run(1)
    assert "40 of 40 steps" in panel.text
    RUNS.end(demo)
    assert "40 of 40 steps" in panel.text


def test_a_panel_follows_a_short_call_while_it_goes_on_and_then_shows_the_training_before_it() -> None:
    RUNS.end(run(40))
    panel = opened()
    assert "40 of 40 steps" in panel.text
    demo = run(1)
    assert "1 of 1 step;" in panel.text
    RUNS.end(demo)
    assert "40 of 40 steps" in panel.text
    RUNS.end(run(30))
    assert "30 of 30 steps" in panel.text, "it follows the next training"
