"""Values that may come later, and queues: the order in which things happen."""

from __future__ import annotations

import itertools
import threading

from pathways_jupyter.local.pathways.ifrt import promises, session_arrays, statuses
from pathways_jupyter.local.pathways.ifrt.array_values import Strings
from pathways_jupyter.local.pathways.ifrt.device_queues import DeviceQueues
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array

DEADLINE = 60.0
ERROR = statuses.invalid("gone")


def _array(value: object = None) -> Array:
    array = Array(None)
    if value is not None:
        array.promise.settle(value)
    return array


def test_a_promise_is_settled_once():
    promise = Promise()
    promise.settle(1)
    promise.settle(2)
    promise.fail(ERROR)
    assert promise.get() == 1


def test_a_lost_value_is_an_error_for_all_later_reads():
    promise = promises.settled(1)
    promise.lose(ERROR)
    assert promise.error is ERROR
    seen: list[object] = []
    promise.then(lambda: seen.append(promise.error))
    assert seen == [ERROR]


def test_a_chain_of_ten_thousand_promises_settles_without_nesting():
    chain = [Promise() for _ in range(10_000)]
    for one, other in itertools.pairwise(chain):
        one.then(lambda one=one, other=other: other.settle(one.get() + 1))
    chain[0].settle(0)
    assert chain[-1].get() == 9_999


def test_what_a_launch_raises_becomes_the_error_of_its_outputs():
    output = _array()
    done = session_arrays.launch(lambda found: 1 / 0, [], [output])
    assert "ZeroDivisionError" in str(output.promise.error)
    assert done.error == output.promise.error


def test_an_error_passes_through_what_is_made_of_it():
    broken, middle, last = _array(), _array(), _array()
    session_arrays.launch(lambda found: (found, None), [broken], [middle])
    session_arrays.launch(lambda found: (found, None), [middle], [last])
    broken.promise.fail(ERROR)
    assert str(last.promise.error) == str(ERROR)


def test_what_consumes_an_array_waits_for_what_reads_it():
    order: list[str] = []
    shared, missing = _array("value"), _array()
    session_arrays.launch(lambda found: (order.append("read") or [], None), [shared, missing], [])
    session_arrays.launch(lambda found: (order.append("consume") or [], None), [shared], [], consumed=[shared])
    assert (order, shared.deleted) == ([], True)
    missing.promise.settle("there")
    assert order == ["read", "consume"]


def test_a_lost_array_notifies_waiting_callbacks():
    array = _array()
    ready = array.ready(DeviceQueues().of)
    assert not ready.settled
    array.lose(ERROR)
    assert ready.error is ERROR


def test_strings_are_ready_when_they_are_there():
    assert _array(Strings(((b"a",),))).ready(DeviceQueues().of).settled


class _Computation:
    """Something to wait for, which ends on request."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def block_until_ready(self) -> None:
        assert self.over.wait(DEADLINE)


def test_an_idle_queue_runs_jobs_where_they_are_launched_and_a_full_one_elsewhere_in_order():
    queue = DeviceQueues().of([0])
    where: list[threading.Thread] = []
    running = [_Computation() for _ in range(20)]
    started = [threading.Event() for _ in running]
    order: list[int] = []

    def job(number: int):
        def run():
            where.append(threading.current_thread())
            order.append(number)
            started[number].set()
            return running[number]

        return run

    for number in range(20):
        queue.launch(job(number))
    # Launching has not blocked, although nothing has ended: the first few run, the others wait.
    assert where[0] is threading.current_thread()
    assert not started[19].is_set()
    for each in running:
        each.over.set()
    assert all(each.wait(DEADLINE) for each in started)
    assert order == list(range(20))
    assert where[-1] is not threading.current_thread()


def test_a_computation_that_fails_is_reported_to_waiting_callbacks():
    class Failing:
        def block_until_ready(self) -> None:
            raise RuntimeError("INTERNAL: broken")

    shown = threading.Event()
    errors: list[BaseException | None] = []
    DeviceQueues().of([0]).wait(Failing(), lambda error: (errors.append(error), shown.set()))
    assert shown.wait(DEADLINE)
    assert "broken" in str(errors[0])
