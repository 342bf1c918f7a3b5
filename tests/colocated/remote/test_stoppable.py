from __future__ import annotations

import random
import threading
import time

import pytest

from pathways_jupyter.colocated.remote import stoppable


def in_thread(call: str, work) -> tuple[threading.Thread, list]:
    outcome: list = []

    def run() -> None:
        try:
            outcome.append(stoppable.Job(call).run(work, "<cell>"))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def test_a_job_that_is_cancelled_as_it_begins_ends_as_cancelled() -> None:
    chance = random.Random(3)

    def forever() -> None:
        while True:
            time.sleep(0.001)

    for number in range(300):
        thread, outcome = in_thread(f"begins {number}", forever)
        # From before the thread exists to after its work has begun.
        until = time.perf_counter() + chance.random() * 4e-4
        while time.perf_counter() < until:
            pass
        stoppable.cancel(f"begins {number}")
        thread.join(30)
        assert [type(each) for each in outcome] == [KeyboardInterrupt]


def test_a_job_that_was_cancelled_before_it_began_does_not_begin() -> None:
    stoppable.cancel("early")
    with pytest.raises(KeyboardInterrupt):
        stoppable.Job("early").run(lambda: pytest.fail("it ran"), "<cell>")
