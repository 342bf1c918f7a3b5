"""Batches of any size: no row is lost or used twice, wherever the run goes back to."""

from __future__ import annotations

import itertools

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
    assert not batches._kept, "its state is enough"
    another = Batches(source())
    another.restore(position)
    assert [another.next().tolist() for _ in range(3)] == follows
