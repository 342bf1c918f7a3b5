"""The account of a run's time: each second in one category."""

from __future__ import annotations

from pathways_jupyter.elastic import goodput
from pathways_jupyter.elastic.goodput import Goodput, Spent


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(goodput.time, "monotonic", lambda: self.now)

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
