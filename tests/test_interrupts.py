import os
import signal
import threading

import pytest

from pathways_jupyter import interrupts

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


def test_what_somebody_else_makes_of_an_interrupt_stays():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append("theirs"))
    try:
        with interrupts.after_imports():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == ["theirs"]


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
