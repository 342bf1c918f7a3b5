"""Arrays are found where variables reach them, and others put there, with CPU arrays and no cluster."""

from __future__ import annotations

import collections
import functools
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pathways_jupyter.saved import places
from pathways_jupyter.saved.resize import Resize


class State(NamedTuple):
    mu: Any
    nu: Any


@dataclass(frozen=True)
class Frozen:
    w: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    w: Any


class Model:
    def __init__(self, w):
        self.w = w
        self.me = self

    def loss(self):
        return self.w


def closed_over(array):
    return lambda: array


def default(array):
    def returned(x=array):
        return x

    return returned


HOLDERS = {
    "variable": (lambda a: a, lambda h: h),
    "list": (lambda a: [1, [a]], lambda h: h[1][0]),
    "dict": (lambda a: {"x": {"y": a}}, lambda h: h["x"]["y"]),
    "ordered": (lambda a: collections.OrderedDict(x=a), lambda h: h["x"]),
    "deque": (lambda a: collections.deque([a]), lambda h: h[0]),
    "tuple": (lambda a: (1, (a,)), lambda h: h[1][0]),
    "namedtuple": (lambda a: State(a, {"x": 1}), lambda h: h.mu),
    "frozen": (Frozen, lambda h: h.w),
    "slotted": (Slotted, lambda h: h.w),
    "object": (Model, lambda h: h.me.w),
    "method": (lambda a: Model(a).loss, lambda h: h()),
    "closure": (closed_over, lambda h: h()),
    "default": (default, lambda h: h()),
    "partial": (lambda a: functools.partial(lambda x: x, a), lambda h: h()),
    "jitted": (lambda a: jax.jit(closed_over(a)), lambda h: h.__wrapped__()),
}


@pytest.fixture
def alive():
    """Returns the arrays of a shape that the test has made, and not what garbage of earlier ones still holds."""
    before = jax.live_arrays()

    def of(*shape: int) -> list[jax.Array]:
        known = {id(each) for each in before}
        return [each for each in jax.live_arrays() if each.shape == shape and id(each) not in known]

    return of


@pytest.mark.parametrize("name", HOLDERS)
def test_every_holder_holds_the_new_array(name):
    make, held = HOLDERS[name]
    old, new = jnp.arange(3.0), jnp.arange(4.0)
    variables = {"x": make(old), "alias": old}
    assert [id(each) for each in places.arrays_in(variables)] == [id(old)]
    before = variables["x"]
    places.replace(variables, lambda value: new if value is old else value)
    assert held(variables["x"]) is new
    assert variables["alias"] is new
    assert type(variables["x"]) is type(before)
    if name not in ("variable", "tuple", "namedtuple"):
        assert variables["x"] is before


def test_aliases_and_views_keep_their_identity():
    old, new = jnp.ones(2), jnp.zeros(2)
    table, pair = {"w": old}, (old, 1)
    variables = {"table": table, "items": [table.items()], "pairs": [pair, pair], "same": table}
    variables["table"]["me"] = variables["table"]
    places.replace(variables, lambda value: new if value is old else value)
    assert variables["same"] is variables["table"] is table["me"]
    assert dict(variables["items"][0])["w"] is new
    assert variables["pairs"][0] is variables["pairs"][1]
    assert variables["pairs"][0][0] is new


def test_meshes_shardings_and_devices_go_to_the_new_devices():
    (device,) = jax.devices("cpu")[:1]
    mesh = jax.sharding.Mesh(np.array([device]), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    seen = []
    places.replace({"all": (mesh, [sharding], device)}, lambda value: seen.append(value) or value)
    assert seen == [mesh, sharding, device]
    change = Resize(1, 1, 1).mover([device], [device])
    assert [change(each) for each in seen] == seen


def test_an_array_that_only_a_generator_holds_is_named(alive):
    def batches():
        array = jnp.ones((2, 3))
        while True:
            yield array.sum()

    generator = batches()
    next(generator)
    reached = places.arrays_in({"generator": generator})
    live = alive(2, 3)
    (described,) = places.unreached(live, reached)
    assert described.startswith("float32[2,3], held by generator ")
    assert "batches" in described


def test_arrays_that_only_the_traceback_of_the_last_error_holds_are_not_named(alive, monkeypatch):
    def step():
        array = jnp.ones((3, 5))
        raise ValueError(array.shape)

    def train():
        gradients = [jnp.ones((3, 5))]
        try:
            step()
        except ValueError as error:
            raise RuntimeError(len(gradients)) from error

    with pytest.raises(RuntimeError) as raised:
        train()
    live = alive(3, 5)
    assert len(live) == len(places.unreached(live, [])) == 2
    monkeypatch.setattr(sys, "last_value", raised.value, raising=False)
    assert places.unreached(live, []) == []
    # As ``raise error from error`` makes it.
    raised.value.__cause__.__cause__ = raised.value
    assert places.unreached(live, []) == []


class Counted(list):
    searched = 0

    def __iter__(self):
        self.searched += 1
        return super().__iter__()


def test_the_frames_of_the_last_error_are_searched_once_and_only_for_what_is_unreached(alive, monkeypatch):
    shared = Counted([jnp.ones((7, 2))])

    def deeper(left, held):
        if left:
            deeper(left - 1, held)
        raise ValueError("the innermost of many calls that hold the same")

    with pytest.raises(ValueError, match="innermost") as raised:
        deeper(20, shared)
    monkeypatch.setattr(sys, "last_value", raised.value, raising=False)
    live = alive(7, 2)
    assert places.unreached(live, live) == []
    assert shared.searched == 0
    assert places.unreached(live, []) == []
    assert shared.searched == 1


def test_variables_that_are_too_deep_are_one_sentence():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(places.UnsavableError, match="too deep"):
        places.arrays_in({"deep": deep})
