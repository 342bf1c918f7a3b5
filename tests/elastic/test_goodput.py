"""The account of a run's time, held against the calculator of ml-goodput-measurement."""

from __future__ import annotations

import datetime

import pytest

from pathways_jupyter.elastic import goodput
from pathways_jupyter.elastic.goodput import Goodput, GoodputSink, Spent

BEGIN = 1_700_000_000.0


class Log:
    """Google's Cloud Logging, as far as the package uses it: entries are written and read back."""

    def __init__(self):
        self.entries = []

    def write_cloud_logging_entry(self, entry):
        self.entries.append(entry)

    def read_cloud_logging_entries(self, *times, **more):
        return list(self.entries), None


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(goodput.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(goodput, "_now", self.utc)

    def utc(self):
        return datetime.datetime.fromtimestamp(BEGIN + self.now, datetime.UTC)

    def passes(self, seconds):
        self.now += seconds


def run(account: Goodput, clock: Clock) -> None:
    """Ten steps, a loss in the middle of the sixth, and growth before the last."""

    def steps(numbers):
        for number in numbers:
            with account.during(Spent.DATA_LOADING):
                clock.passes(0.25)
            clock.passes(2)
            account.step(number)

    with account.during(Spent.TPU_INITIALIZATION):
        clock.passes(9)
    clock.passes(5)
    account.begin_steps()
    with account.during(Spent.PROGRAM_STARTUP):
        clock.passes(4)
    steps(range(5))
    with account.during(Spent.CHECKPOINT_SAVE):
        clock.passes(0.5)
    clock.passes(1)
    account.waste()
    with account.during(Spent.REINITIALIZATION):
        clock.passes(1)
        with account.during(Spent.SLICE_DOWN):
            clock.passes(6)
        with account.during(Spent.CHECKPOINT_RESTORE):
            clock.passes(3)
        clock.passes(1)
    steps(range(3, 9))
    with account.during(Spent.SCALE_UP):
        clock.passes(7)
    steps([9])
    account.end()


def test_every_second_is_in_one_category(monkeypatch):
    clock, account = Clock(monkeypatch), Goodput()
    run(account, clock)
    spent = {name: seconds for name, seconds in account.seconds().items() if seconds}
    assert spent == {
        Spent.STEP: 20,
        Spent.TPU_INITIALIZATION: 9,
        Spent.TRAINING_PREP: 5,
        Spent.PROGRAM_STARTUP: 4,
        Spent.DATA_LOADING: 3,
        Spent.CHECKPOINT_SAVE: 0.5,
        # Steps 3 and 4, and what was begun of step 5.
        Spent.WASTED_PROGRESS: 5,
        Spent.SLICE_DOWN: 6,
        Spent.CHECKPOINT_RESTORE: 3,
        Spent.REINITIALIZATION: 2,
        Spent.SCALE_UP: 7,
    }
    assert sum(spent.values()) == clock.now


def test_the_calculator_of_ml_goodput_measurement_agrees(monkeypatch, tmp_path):
    from ml_goodput_measurement.src import goodput_elastic as elastic
    from ml_goodput_measurement.src.goodput_utils import BadputType as badput

    log, clock = Log(), Clock(monkeypatch)
    recorder = elastic.ElasticGoodputRecorder("train", "log", logging_enabled=True, cloud_logger=log)
    sink = GoodputSink(recorder)
    account = Goodput(sink)
    sink.slices(3, 3, 3)
    run(account, clock)
    calculator = elastic.ElasticGoodputCalculator(
        "train", "log", cloud_logger=log, using_pathways=True, cache_dir=str(tmp_path)
    )
    share, lost, last_step = calculator.get_job_goodput(include_badput_breakdown=True)
    ours, percent = account.seconds(), 100 / clock.now
    assert last_step == 9
    # It counts what a step waits for data as productive, except before the first step of all.
    loading = ours[Spent.DATA_LOADING] - 0.25 * 2
    assert share == pytest.approx((ours[Spent.STEP] + loading) * percent, abs=0.5)
    assert lost[badput.TPU_INITIALIZATION] == pytest.approx(ours[Spent.TPU_INITIALIZATION] * percent)
    assert lost[badput.TRAINING_PREP] == pytest.approx(ours[Spent.TRAINING_PREP] * percent)
    assert lost[badput.ELASTIC_SLICE_DOWN] == pytest.approx(ours[Spent.SLICE_DOWN] * percent)
    assert lost[badput.ELASTIC_SCALE_UP] == pytest.approx(ours[Spent.SCALE_UP] * percent)
    reinitialization = ours[Spent.REINITIALIZATION] + ours[Spent.CHECKPOINT_RESTORE]
    assert lost[badput.ELASTIC_REINITIALIZATION] == pytest.approx(reinitialization * percent)
    # Of the lost steps it also counts what they waited for data, and the snapshot after them.
    wasted = ours[Spent.WASTED_PROGRESS] + 2 * 0.25 + ours[Spent.CHECKPOINT_SAVE]
    assert lost[badput.WASTED_PROGRESS_FROM_DISRUPTION] == pytest.approx(wasted * percent)
    assert lost[badput.CUSTOM_BADPUT_EVENTS][Spent.PROGRAM_STARTUP] == pytest.approx(
        ours[Spent.PROGRAM_STARTUP] * percent
    )


def test_a_recorder_that_fails_or_knows_nothing_of_elasticity_does_no_harm(monkeypatch):
    class Plain:
        def __init__(self):
            self.called = []

        def record_custom_badput_event_start_time(self, *, start_time, custom_badput_event_type):
            self.called.append(custom_badput_event_type)

        def record_step_start_time(self, *, step, start_time):
            raise ConnectionError("the log is away")

    clock, plain = Clock(monkeypatch), Plain()
    account = Goodput(GoodputSink(plain))
    run(account, clock)
    assert plain.called == [
        "PROGRAM_STARTUP",
        "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    ]
    assert account.seconds()[Spent.STEP] == 20
