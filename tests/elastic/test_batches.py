"""Batches of any size: no row is lost or used twice, wherever the run goes back to."""

from __future__ import annotations

import _thread
import functools
import itertools
import signal

import numpy as np
import pytest

from pathways_jupyter import elastic
from pathways_jupyter.elastic.batches import Batches

ROWS = 6


def rows(number: int) -> np.ndarray:
    return np.arange(number * ROWS, (number + 1) * ROWS)


class Positioned:
    def __init__(self) -> None:
        self.number = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.number += 1
        return rows(self.number - 1)

    def get_state(self):
        return {"number": self.number}

    def set_state(self, state):
        self.number = state["number"]


class Iterable:
    """It hands out iterators, each from the beginning."""

    def __iter__(self):
        return map(rows, range(50))


@pytest.mark.parametrize("source", [Positioned, Iterable])
def test_rows_after_going_back_are_those_that_followed(source):
    batches, used, positions = Batches(source()), [], []
    shares = [1.0, 2 / 3, 1 / 3, 2 / 3, 1.0, 1 / 3, 1.0]
    for share in shares:
        positions.append(batches.position())
        used.append(batches.next(share).tolist())
    in_order = list(itertools.chain(*used))
    assert in_order == list(range(len(in_order)))
    for place in (6, 3, 1, 4, 0):
        batches.restore(positions[place])
        assert [batches.next(share).tolist() for share in shares[place:]] == used[place:]


@pytest.mark.parametrize("source", [Positioned, Iterable])
def test_another_process_goes_on_at_the_position(source):
    batches = Batches(source())
    for share in (1.0, 1.0, 1 / 3):
        batches.next(share)
    position = batches.position()
    follows = batches.next(2 / 3).tolist()
    another = Batches(source())
    another.restore(position)
    assert another.next(2 / 3).tolist() == follows


def test_batches_that_are_needed_again_and_not_kept_are_an_error():
    batches = Batches(Iterable())
    first = batches.position()
    batches.next()
    batches.forget(batches.position())
    with pytest.raises(elastic.ElasticRuntimeError, match="past batch 0"):
        batches.restore(first)
    with pytest.raises(elastic.ElasticRuntimeError, match="end after 50 batches"):
        batches.restore(type(first)(count=60, used=0, state=None))


def test_a_share_that_is_no_whole_number_of_rows():
    with pytest.raises(ValueError, match=r"0\.25 of a batch of 6 rows"):
        Batches(Iterable()).next(0.25)


def interrupted_at(number: int):
    for each in range(50):
        if each == number:
            raise KeyboardInterrupt
        yield rows(each)


@pytest.mark.parametrize("wrapped", [iter, functools.partial(map, np.copy)])
def test_a_generator_that_an_interrupt_has_ended_is_not_taken_for_the_end_of_the_data(wrapped):
    """Neither when the run goes on at once, nor from a snapshot; also if another iterator is around it."""
    batches = Batches(wrapped(interrupted_at(3)))
    batches.next()
    position = batches.position()
    follows = [batches.next().tolist() for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        batches.next()
    for _ in range(2):
        with pytest.raises(
            elastic.ElasticRuntimeError, match="ended by KeyboardInterrupt while it made batch 3"
        ) as said:
            batches.next()
        assert "a new iterator" in said.value.hint

    def go_on():
        batches.restore(position)
        # Of an iterator around a generator it is only known when it is asked for another batch.
        assert [batches.next().tolist() for _ in range(2)] == follows
        batches.next()

    with pytest.raises(elastic.ElasticRuntimeError, match="ended by KeyboardInterrupt"):
        go_on()


def test_data_without_a_batch_are_an_error():
    """A generator that was interrupted in an earlier run without snapshots looks like one that is empty."""
    used = interrupted_at(1)
    with pytest.raises(KeyboardInterrupt):
        list(used)
    for data in (used, []):
        with pytest.raises(elastic.ElasticRuntimeError, match="The data have no batch"):
            Batches(data).next()


def test_data_that_end_after_an_iterator_has_recovered_have_ended():
    """It raised once, and gave its other batches when it was asked again."""

    class Recovers(Positioned):
        get_state = None
        failed = False

        def __next__(self):
            if self.number == 2 and not self.failed:
                self.failed = True
                raise OSError
            if self.number == 4:
                raise StopIteration
            return super().__next__()

    batches = Batches(Recovers())
    used = [batches.next().tolist() for _ in range(2)]
    with pytest.raises(OSError):
        batches.next()
    used += [batches.next().tolist() for _ in range(2)]
    assert used == [rows(number).tolist() for number in range(4)]
    for _ in range(2):
        with pytest.raises(StopIteration):
            batches.next()


def test_data_that_keep_their_position_go_on_in_another_iterator():
    class Keeps:
        number = 0
        fails = True

        def __iter__(self):
            while self.number < 5:
                if self.number == 3 and self.fails:
                    self.fails = False
                    raise KeyboardInterrupt
                self.number += 1
                yield rows(self.number - 1)

        get_state = Positioned.get_state
        set_state = Positioned.set_state

    batches = Batches(Keeps())
    first = batches.position()
    for _ in range(2):
        batches.next()
    position = batches.position()
    batches.next()
    with pytest.raises(KeyboardInterrupt):
        batches.next()
    batches.restore(position)
    assert [batches.next().tolist() for _ in range(3)] == [rows(number).tolist() for number in (2, 3, 4)]
    with pytest.raises(StopIteration):
        batches.next()
    batches.restore(first)
    assert batches.next().tolist() == rows(0).tolist()


def test_an_interrupt_while_an_iterator_computes_in_c_loses_no_batch():
    """Python raises it when the call returns, with the batch."""
    ignored = signal.SIGUSR1
    assert signal.getsignal(ignored) is signal.SIG_DFL
    signals = map(_thread.interrupt_main, [ignored, ignored, signal.SIGINT, ignored])
    batches = Batches(zip(map(rows, range(4)), signals, strict=True))
    used = [batches.next()[0].tolist() for _ in range(2)]
    before = batches.position()
    with pytest.raises(KeyboardInterrupt):
        batches.next()
    batches.restore(before)
    used += [batches.next()[0].tolist() for _ in range(2)]
    assert used == [rows(number).tolist() for number in range(4)]
    with pytest.raises(StopIteration):
        batches.next()


def test_what_is_no_batch_is_named():
    with pytest.raises(elastic.ElasticRuntimeError, match="gave 'x', which is no batch"):
        Batches({"x": rows(0)}).next()


def _dataset():
    # Every process of a test run imports this file, and grain takes seconds.
    import grain

    return grain.MapDataset.source(list(range(60))).shuffle(seed=3).to_iter_dataset().batch(ROWS)


def _loader():
    import grain

    return grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, 60, 1),
        sampler=grain.samplers.IndexSampler(60, grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=3),
        operations=[grain.transforms.Batch(ROWS)],
        worker_count=0,
    )


@pytest.mark.parametrize("source", [_dataset, _loader])
def test_grains_iterators_go_back_to_their_state(source):
    batches = Batches(source())
    batches.next()
    position = batches.position()
    follows = [batches.next().tolist() for _ in range(3)]
    batches.restore(position)
    assert [batches.next().tolist() for _ in range(3)] == follows
    assert not batches._buffer, "its state is enough"
    another = Batches(source())
    another.restore(position)
    assert [another.next().tolist() for _ in range(3)] == follows
