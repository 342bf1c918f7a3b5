"""Waiting for hosts: an Interrupt at any moment is noted, and a second one ends the wait."""

import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest
from sigint_tracer import sigint_at

from pathways_jupyter.base import interrupts, tasks
from pathways_jupyter.colocated import loss
from pathways_jupyter.colocated.errors import ColocatedError, LostError

LINES = 60
"""More lines than the wait executes before it blocks."""


class Interrupted(Exception):
    """Exception of a wait after an interrupt."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result


class Work:
    """Work that ends when the test wants it to; it may press Interrupt first, when the wait for it has begun."""

    def __init__(self, *, interrupts: bool = False) -> None:
        self.begun = False
        self.interrupts = interrupts
        self.end = threading.Event()

    def __call__(self) -> str:
        self.begun = True
        if self.interrupts:
            signal.raise_signal(signal.SIGINT)
        self.end.wait(30)
        return "done"


@pytest.mark.parametrize("line", range(1, LINES))
def test_two_interrupts_at_any_line_end_the_wait_and_none_gets_out_of_it(line: int, monkeypatch) -> None:
    # Ends the wait where it blocks before the second interrupt, and the timer where it blocks before the first.
    monkeypatch.setattr(loss, "PATIENCE_SECONDS", 0.05)
    work = Work()
    bound = threading.Timer(0.1, work.end.set)
    bound.start()
    try:
        with sigint_at(line, loss, tasks, interrupts, times=2) as tracer:
            loss.wait_for_hosts((), work, lambda: None, Interrupted)
    except KeyboardInterrupt:
        assert not work.begun or work.end.is_set()
    except Interrupted:
        assert tracer.raised
    else:
        assert not tracer.raised
    finally:
        bound.cancel()
        work.end.set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_asks_the_work_to_stop_and_keeps_what_it_still_returns() -> None:
    work = Work(interrupts=True)
    with pytest.raises(Interrupted) as caught:
        loss.wait_for_hosts((), work, work.end.set, Interrupted)
    assert caught.value.result == "done"


def test_without_a_way_to_stop_it_an_interrupt_leaves_the_work_alone() -> None:
    work = Work(interrupts=True)
    with pytest.raises(Interrupted) as caught:
        loss.wait_for_hosts((), work, interrupted=Interrupted)
    assert caught.value.result is None
    work.end.set()


def test_an_interrupt_is_raised_as_such_by_default() -> None:
    work = Work(interrupts=True)
    with pytest.raises(KeyboardInterrupt):
        loss.wait_for_hosts((), work)
    work.end.set()


@contextlib.contextmanager
def interrupted_at_last() -> Iterator[None]:
    """Interrupt what still waits after 20 seconds."""
    timer = threading.Timer(20, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.mark.parametrize("error", [ColocatedError("A host refused."), LostError("A host went away.")])
def test_a_call_that_fails_is_not_waited_for(error: ColocatedError) -> None:
    def fail() -> None:
        raise error

    with interrupted_at_last(), pytest.raises(type(error), match=str(error)):
        loss.wait_for_hosts((), fail, interrupted=Interrupted)
