import gc
import os
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from pathways_jupyter.base import interrupts

SOURCE = """
os.kill(os.getpid(), signal.SIGINT)
reached.append("the end")
"""


def run(filename: str) -> list[str]:
    """Interrupts code that calls itself a part of `filename`; returns how far that code came."""
    reached: list[str] = []
    names = {"os": os, "signal": signal, "reached": reached}

    def interrupted() -> None:
        with interrupts.after_imports():
            exec(compile(SOURCE, filename, "exec"), names)
            # What was put off comes here.
            threading.Event().wait(60)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    return reached


def test_an_interrupt_waits_for_the_import_system_and_for_nothing_else():
    assert run("<frozen importlib._bootstrap>") == ["the end"]
    assert run("cell.py") == []


class Interrupting:
    """Interrupts this process when it is destroyed."""

    def __init__(self, *, gone: bool) -> None:
        self.gone = gone

    def __del__(self) -> None:
        if self.gone:
            os.kill(os.getpid(), signal.SIGINT)


class InterruptingSet(set):
    def discard(self, item: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        super().discard(item)


class InterruptingLock:
    """A lock that interrupts this process when a condition's wait has released it, or is about to take it again."""

    def __init__(self, method: str) -> None:
        self.lock = threading.Lock()
        self.method = method

    def __enter__(self) -> bool:
        return self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def release(self) -> None:
        self.lock.release()
        if self.method == "release":
            os.kill(os.getpid(), signal.SIGINT)

    def acquire(self, blocking: bool = True) -> bool:
        if blocking and self.method == "acquire":
            os.kill(os.getpid(), signal.SIGINT)
        return self.lock.acquire(blocking)


def in_a_destructor() -> None:
    Interrupting(gone=True)


def in_a_weakref_callback() -> None:
    living = weakref.WeakSet()
    living.data = InterruptingSet()
    member = Interrupting(gone=False)
    living.add(member)
    del member
    gc.collect()


def in_a_finalizer() -> None:
    member = Interrupting(gone=False)
    weakref.finalize(member, os.kill, os.getpid(), signal.SIGINT)
    del member
    gc.collect()


def in_a_weakref_callback_of_any_library() -> None:
    member = Interrupting(gone=False)
    reference = weakref.ref(member, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del member
    assert reference() is None


def in_a_generator_that_is_destroyed() -> None:
    def numbers() -> Iterator[int]:
        try:
            yield 1
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    next(numbers())


def in_a_callback_of_the_garbage_collector() -> None:
    """As Hypothesis and JAX add one."""

    def callback(phase: str, _: dict) -> None:
        if phase == "start":
            os.kill(os.getpid(), signal.SIGINT)

    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)


@pytest.mark.parametrize(
    "interrupted",
    [
        in_a_destructor,
        in_a_weakref_callback,
        in_a_finalizer,
        in_a_weakref_callback_of_any_library,
        in_a_generator_that_is_destroyed,
        in_a_callback_of_the_garbage_collector,
    ],
)
def test_an_interrupt_where_python_would_swallow_it_comes_afterwards(interrupted, monkeypatch):
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def run() -> None:
        with interrupts.after_imports():
            interrupted()
            threading.Event().wait(60)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert lost == []


@pytest.mark.parametrize("method", ["release", "acquire"])
def test_an_interrupt_while_a_wait_changes_its_lock_does_not_break_the_lock(method):
    """The lock would be released twice, which is a RuntimeError instead of a KeyboardInterrupt."""
    condition = threading.Condition(InterruptingLock(method))

    def run() -> None:
        with interrupts.after_imports():
            with condition:
                condition.wait(0.1)
            threading.Event().wait(60)

    with pytest.raises(KeyboardInterrupt):
        run()


def test_a_hook_that_outlives_its_time_defers_nothing(monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: printed.append(unraisable.exc_type))
    with interrupts.after_imports():
        kept = sys.unraisablehook
        monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: kept(unraisable))
    in_a_weakref_callback_of_any_library()
    with interrupts.after_imports():
        pass
    assert printed == [KeyboardInterrupt]


def test_a_deferred_interrupt_ends_a_wait_that_begins_when_it_comes():
    """Python may note a signal that arrives just before a wait, and wait anyway."""
    chance = random.Random(5)
    late = threading.Event()

    def run() -> None:
        with interrupts.after_imports():
            in_a_destructor()
            busy_until = time.perf_counter() + chance.uniform(0.8, 1.2) * interrupts._AGAIN_SECONDS
            while time.perf_counter() < busy_until:
                pass
            threading.Event().wait(6)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(100):
            deadline = threading.Timer(5, late.set)
            deadline.start()
            with pytest.raises(KeyboardInterrupt):
                run()
            deadline.cancel()
            assert not late.is_set()
    finally:
        sys.setswitchinterval(before)


def test_another_handler_of_interrupts_stays():
    called = []
    before = signal.signal(signal.SIGINT, lambda *_: called.append("theirs"))
    try:
        with interrupts.after_imports():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert called == ["theirs"]


def test_the_usual_handler_is_back_afterwards():
    with interrupts.after_imports(), interrupts.after_imports():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_change_nothing():
    seen = []

    def there():
        with interrupts.after_imports():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=there)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
