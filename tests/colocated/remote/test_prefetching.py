"""An iterator on a host: read ahead, a batch at a time, up to its end or its error."""

from __future__ import annotations

import threading

import jax
import numpy as np

from pathways_jupyter.colocated.remote import prefetching
from pathways_jupyter.colocated.remote.prefetching import Prefetcher

DEADLINE = 30.0


def targets(rows: int):
    sharding = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    return [((rows, 2), np.dtype(np.float32), sharding)]


def batches(*rows: int):
    for number in rows:
        yield np.full((number, 2), number, np.float32)


def test_it_reads_no_further_ahead_than_it_may_and_not_at_all_when_it_is_closed() -> None:
    drawn = []
    is_over = threading.Event()

    def make():
        try:
            for number in range(100):
                drawn.append(number)
                yield number
        finally:
            is_over.set()

    prefetcher = Prefetcher(make, ahead=2)
    assert prefetcher.next() == 0
    prefetcher.close()
    assert is_over.wait(DEADLINE)
    # One that was taken, two that waited, and one that had no room; closing makes room for two.
    assert len(drawn) <= 6


def test_a_request_that_waits_for_a_batch_ends_when_the_iterator_is_closed() -> None:
    is_loading, goes_on = threading.Event(), threading.Event()
    states = []

    def make():
        is_loading.set()
        goes_on.wait(DEADLINE)
        yield np.zeros((4, 2), np.float32)

    prefetcher = Prefetcher(make, ahead=1)
    waiting = threading.Thread(
        target=lambda: states.append(prefetching.next_batch(prefetcher, targets(4))[0]), daemon=True
    )
    waiting.start()
    assert is_loading.wait(DEADLINE)
    prefetcher.close()
    waiting.join(DEADLINE)
    goes_on.set()
    assert states == [{"end": True, "error": None}]


def test_a_smaller_last_batch_ends_it_and_another_shape_is_an_error() -> None:
    prefetcher = Prefetcher(lambda: batches(4, 3), ahead=1)
    state, (array,) = prefetching.next_batch(prefetcher, targets(4))
    assert state == {"end": False, "error": None}
    assert np.asarray(array).tolist() == [[4.0, 4.0]] * 4
    state, (array,) = prefetching.next_batch(prefetcher, targets(4))
    assert (state["end"], np.asarray(array).tolist()) == (True, [[0.0, 0.0]] * 4)
    state, _ = prefetching.next_batch(Prefetcher(lambda: batches(5), ahead=1), targets(4))
    assert state["error"]["message"] == "A batch has shape [5, 2], the first one had [4, 2]."
