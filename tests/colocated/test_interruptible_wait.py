"""Waiting for hosts: an Interrupt at any moment is noted, and a second one ends the wait."""

import signal
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from pathways_jupyter.colocated import interruptible_wait

LINES = 40
"""More lines than the wait executes before it blocks."""


class Work:
    """Work that ends when the test wants it to."""

    def __init__(self) -> None:
        self.begun = False
        self.end = threading.Event()

    def __call__(self) -> str:
        self.begun = True
        self.end.wait(30)
        return "done"


class Presses:
    """A trace function that presses Interrupt before the `line`-th line of the wait, and before the next one."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.passed = 0
        self.pressed = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != interruptible_wait.__file__:
            return None
        if event == "line":
            self.passed += 1
            if self.passed in (self.line, self.line + 1):
                self.pressed += 1
                signal.raise_signal(signal.SIGINT)
        return self


@pytest.mark.parametrize("line", range(1, LINES))
def test_two_interrupts_at_any_line_end_the_wait_and_none_gets_out_of_it(line: int, monkeypatch) -> None:
    # Ends the wait where it blocks before the second interrupt, and the timer where it blocks before the first.
    monkeypatch.setattr(interruptible_wait, "PATIENCE_SECONDS", 0.05)
    work, presses = Work(), Presses(line)
    bound = threading.Timer(0.1, work.end.set)
    bound.start()
    before = sys.gettrace()
    sys.settrace(presses)
    try:
        waited = interruptible_wait.wait((), work, stop=lambda: None)
    except KeyboardInterrupt:
        assert not work.begun or work.end.is_set()
    else:
        assert waited.interrupted == (presses.pressed > 0)
    finally:
        sys.settrace(before)
        bound.cancel()
        work.end.set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_asks_the_work_to_stop_and_keeps_what_it_still_returns() -> None:
    work = Work()
    pressing = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
    pressing.start()
    waited = interruptible_wait.wait((), work, stop=work.end.set)
    assert waited == interruptible_wait.Waited("done", True)


def test_without_a_way_to_stop_it_an_interrupt_leaves_the_work_alone() -> None:
    work = Work()
    pressing = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
    pressing.start()
    waited = interruptible_wait.wait((), work)
    assert waited == interruptible_wait.Waited(None, True)
    work.end.set()
