"""Interrupts: at any moment of a wait for other threads, and counted."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time

import pytest

from pathways_jupyter.base.interrupts import (
    Changes,
    InterruptibleEvent,
    count_sigint,
    defer_sigint,
    raise_if_interrupted,
    raise_sigint,
)

INTERRUPTS = 2000


@pytest.fixture
def repeat_until_interrupted():
    """Repeat an action until a KeyboardInterrupt, which comes at any moment, also within Python's own functions."""
    chance = random.Random(1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def repeat(action) -> None:
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-6 + chance.random() * 1e-4)
            while True:
                action()
        except KeyboardInterrupt:
            pass

    ended = threading.Event()

    def ask_for_the_gil() -> None:
        while not ended.wait(0.1):
            pass

    before = signal.signal(signal.SIGALRM, interrupt)
    # Python swallows what is raised in a callback of its garbage collector, as other tests' libraries add them.
    gc.disable()
    # Python 3.11 can forget a signal that arrives while it looks for one, until another thread asks for the GIL (one in
    # 100,000 signals). A kernel always has such a thread; the process of these tests need not.
    other = threading.Thread(target=ask_for_the_gil, daemon=True)
    other.start()
    yield repeat
    ended.set()
    other.join()
    gc.enable()
    signal.signal(signal.SIGALRM, before)


def set_elsewhere(event: InterruptibleEvent) -> None:
    """Set an event in another thread."""
    thread = threading.Thread(target=event.set, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "setting the event waits for a lock that stays taken"


@pytest.mark.parametrize("piece", [0.0, 1e-5], ids=["looking", "waiting"])
def test_an_interrupted_wait_leaves_an_event_that_can_be_set_and_waited_for(repeat_until_interrupted, piece):
    event = InterruptibleEvent()
    for _ in range(INTERRUPTS):
        repeat_until_interrupted(lambda: event.wait(piece))
    set_elsewhere(event)
    assert event.wait(30)


def test_an_interrupted_notification_is_noticed_all_the_same(repeat_until_interrupted):
    changes = Changes()
    count = 0
    seen = []

    def watch() -> None:
        while count < INTERRUPTS:
            now = count
            changes.wait_for(lambda now=now: count > now)
            seen.append(count)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()

    def notify() -> None:
        with changes.lock:
            changes.notify_all()

    for _ in range(INTERRUPTS):
        repeat_until_interrupted(notify)
        with changes.lock:
            count += 1
            changes.notify_all()
    watcher.join(60)
    assert not watcher.is_alive()
    assert seen[-1] == INTERRUPTS


def test_a_wait_ends_with_its_time_with_the_event_and_at_once_when_it_is_set():
    event = InterruptibleEvent()
    assert not event.wait(0.01)
    threading.Timer(0.05, event.set).start()
    began = time.monotonic()
    assert event.wait(60)
    assert time.monotonic() - began < 60
    assert event.wait(0)
    assert event.is_set()


def test_all_that_wait_are_woken():
    event = InterruptibleEvent()
    woken = threading.Semaphore(0)

    def wait() -> None:
        event.wait()
        woken.release()

    for _ in range(20):
        threading.Thread(target=wait, daemon=True).start()
    event.set()
    for _ in range(20):
        assert woken.acquire(timeout=30)


def test_a_counted_interrupt_raises_nothing_until_the_next_wait():
    event = InterruptibleEvent()
    event.set()
    with count_sigint() as counter:
        signal.raise_signal(signal.SIGINT)
        assert counter.count == 1
        with pytest.raises(KeyboardInterrupt):
            event.wait()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_counted_interrupt_ends_a_wait_that_has_begun():
    event = InterruptibleEvent()
    pressing = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    pressing.start()
    with pytest.raises(KeyboardInterrupt), count_sigint():
        event.wait(60)
    pressing.join()


def test_clean_up_after_an_interrupt_is_ended_by_the_next_one_only():
    event = InterruptibleEvent()
    with count_sigint() as outer:
        signal.raise_signal(signal.SIGINT)
        with count_sigint(cleanup=True) as inner:
            assert not event.wait(0.01)
            signal.raise_signal(signal.SIGINT)
            assert (inner.count, outer.count) == (1, 1)
            with pytest.raises(KeyboardInterrupt):
                event.wait(60)
        with pytest.raises(KeyboardInterrupt):
            raise_if_interrupted()
        raise_if_interrupted()


@pytest.mark.parametrize("inside", [count_sigint, defer_sigint])
def test_an_interrupt_that_came_before_a_block_inside_is_raised_at_its_beginning(inside):
    begun = []
    with count_sigint() as outer:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), inside():
            begun.append("not reached")
        assert outer.count == 0
        with inside():
            begun.append("once")
    assert begun == ["once"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_in_the_moment_before_a_block_inside_is_raised_at_its_beginning(monkeypatch):
    install = signal.signal

    def late(number, handler):
        # When nothing can be raised yet, and the block around still counts.
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        return install(number, handler)

    with count_sigint():
        monkeypatch.setattr(signal, "signal", late)
        with pytest.raises(KeyboardInterrupt), defer_sigint():
            pytest.fail("the block runs")


def test_what_a_block_inside_has_counted_and_not_taken_is_raised_outside():
    with count_sigint() as outer:
        with count_sigint():
            signal.raise_signal(signal.SIGINT)
        assert outer.take() == 1
    with defer_sigint():
        with count_sigint() as inner:
            signal.raise_signal(signal.SIGINT)
        assert inner.take() == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_code_of_others_inside_such_a_block_is_interrupted_as_everywhere():
    ended = []
    with defer_sigint():
        with pytest.raises(KeyboardInterrupt), raise_sigint():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        # One that came before is not lost there.
        with pytest.raises(KeyboardInterrupt), raise_sigint():
            ended.append("not reached")
    assert not ended
    with raise_sigint():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_of_interrupts_stays():
    called = []
    before = signal.signal(signal.SIGINT, lambda *_: called.append("theirs"))
    try:
        with count_sigint() as counter:
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (called, counter.count) == (["theirs"], 0)


def test_other_threads_count_nothing_and_are_not_interrupted():
    event, seen = InterruptibleEvent(), []

    def there():
        with count_sigint() as counter:
            seen.append((signal.getsignal(signal.SIGINT), counter.count, event.wait(60)))

    with count_sigint():
        signal.raise_signal(signal.SIGINT)
        expected = signal.getsignal(signal.SIGINT)
        thread = threading.Thread(target=there)
        thread.start()
        event.set()
        thread.join()
    assert seen == [(expected, 0, True)]
