"""A mesh gets as many slices as there are, along the axis that counts them."""

import numpy as np
import pytest

from pathways_jupyter.saved.resize import Resize

TWO = np.arange(8).reshape(2, 4)


@pytest.mark.parametrize(
    ("before", "now", "old", "new"),
    [
        (2, 1, TWO, [[0, 1, 2, 3]]),
        (2, 3, TWO, np.arange(12).reshape(3, 4)),
        (2, 1, TWO.T, [[0], [1], [2], [3]]),
        (2, 1, np.arange(8), [0, 1, 2, 3]),
        (1, 2, [[0, 1], [2, 3]], [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (2, 1, [[0, 2, 1, 3], [4, 6, 5, 7]], [[0, 2, 1, 3]]),
        (2, 1, [1, 2], [1, 2]),
        (2, 1, [5], None),
        (2, 1, [[0, 4], [5, 1], [2, 6], [3, 7]], None),
        (2, 2, TWO, TWO),
    ],
)
def test_a_mesh_on_another_number_of_slices(before, now, old, new):
    found = Resize(before, now, 4).grid(np.array(old))
    assert (found is None) if new is None else np.array_equal(found, new)


def test_an_array_that_its_mesh_no_longer_divides_does_not_fit():
    sharding = {
        "devices": list(range(8)),
        "shape": [2, 4],
        "axes": ["slice", "chip"],
        "spec": [["slice", "chip"], None],
    }
    array = {"shape": [16, 3], "sharding": sharding}
    assert Resize(2, 1, 4).described(array)["sharding"]["shape"] == [1, 4]
    assert Resize(2, 3, 4).described(array) is None
    assert Resize(2, 3, 4).described({**array, "shape": [24, 3]})["sharding"]["devices"] == list(range(12))
