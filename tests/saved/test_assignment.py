"""Saved values go into the objects that are there, on CPU devices and with no cluster."""

from __future__ import annotations

import collections
import dataclasses
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from pathways_jupyter.saved.assignment import Assignment
from pathways_jupyter.saved.values import VariableReader, VariableWriter


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Mutable:
    w: Any
    n: int = 3


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Frozen:
    w: Any
    inside: Any = None


class Pair(NamedTuple):
    first: Any
    second: Any


class Net(nnx.Module):
    def __init__(self, rngs, width=4):
        self.first = nnx.Linear(3, width, rngs=rngs)
        self.more = nnx.List([nnx.Linear(width, 2, rngs=rngs)])
        self.tied = self.first

    def __call__(self, x):
        return self.more[0](self.first(x)) + self.tied(x).sum()


def saved(**variables):
    """Variables as a save has them, with other arrays than those that are there."""
    writer = VariableWriter(lambda array: array.shape)
    nodes = {name: writer.write(name, value) for name, value in variables.items()}
    reader = VariableReader([jnp.array(each) for each in writer.arrays])
    return {name: reader.read(node) for name, node in json.loads(json.dumps(nodes)).items()}, reader.classes


def placed(loaded, present, reserved=lambda name: ""):
    assignment = Assignment(*loaded, present, reserved)
    return assignment, assignment.apply()


def test_a_module_stays_the_object_that_it_is_and_computes_what_was_saved():
    old, x = Net(nnx.Rngs(0)), jnp.ones(3)
    expected, loaded = old(x), saved(net=old)
    fresh = Net(nnx.Rngs(1))
    kernel, first = fresh.first.kernel, fresh.first
    assert not np.array_equal(fresh(x), expected)
    assignment, found = placed(loaded, {"net": fresh})
    assert (assignment.names, assignment.into, assignment.dictionaries, assignment.kept) == (["net"], ["net"], {}, [])
    assert found["net"] is fresh
    assert fresh.first is first is fresh.tied
    assert fresh.first.kernel is kernel
    np.testing.assert_array_equal(fresh(x), expected)
    nnx.jit(lambda model, x: model(x))(fresh, x)


def test_an_optimizer_and_a_state_go_on():
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)

    def step(model, optimizer):
        grads = nnx.grad(lambda model: (model(jnp.ones(3)) ** 2).sum())(model)
        optimizer.update(model, grads)
        return model.first.kernel[...]

    step(model, optimizer)
    loaded = saved(model=model, optimizer=optimizer)
    expected = step(model, optimizer)
    fresh = Net(nnx.Rngs(5))
    other = nnx.Optimizer(fresh, optax.adam(0.1), wrt=nnx.Param)
    _, found = placed(loaded, {"model": fresh, "optimizer": other})
    assert (found["model"], found["optimizer"]) == (fresh, other)
    np.testing.assert_array_equal(step(fresh, other), expected)


def test_a_state_of_tuples_is_made_again_with_its_classes():
    params = {"w": jnp.ones(3)}
    state = optax.adam(0.1).init(params)
    assignment, found = placed(saved(opt=state, params=params), {"opt": optax.adam(0.1).init(params), "params": params})
    assert jax.tree.structure(found["opt"]) == jax.tree.structure(state)
    assert (assignment.into, assignment.replaced) == (["opt"], ["params"])


@pytest.mark.parametrize(
    "make",
    [
        lambda w: Mutable(w),
        lambda w: Frozen(w, {"deep": [Mutable(w), (w, 2)]}),
        lambda w: Pair(w, Mutable(w)),
        lambda w: {"model": Mutable(w), "step": 3, "all": [Frozen(w), w]},
        lambda w: collections.OrderedDict(a=w, b=w + 1),
        lambda w: jax.tree_util.Partial(jnp.add, w),
        lambda w: (Pair(w, w), Pair(w, w)),
    ],
)
def test_objects_in_objects_get_their_leaves(make):
    old, fresh = make(jnp.arange(3.0)), make(jnp.zeros(3))
    assignment, found = placed(saved(x=old), {"x": fresh})
    assert assignment.into == ["x"]
    assert not assignment.dictionaries
    assert jax.tree.structure(found["x"]) == jax.tree.structure(old)
    for one, other in zip(jax.tree.leaves(found["x"]), jax.tree.leaves(old), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_can_be_changed_stays_the_object_that_it_is():
    model = Mutable(jnp.zeros(3))
    frozen = Frozen(jnp.zeros(3), model)
    _, found = placed(saved(a=Frozen(jnp.ones(3), Mutable(jnp.ones(3)))), {"a": frozen})
    assert found["a"] is not frozen
    assert found["a"].inside is model
    assert model.w.tolist() == [1, 1, 1]
    assert frozen.w.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("present", "why"),
    [
        (Mutable(jnp.zeros(4)), "x.w is float32[4] here and float32[3] in the save"),
        (Mutable(jnp.zeros(3, jnp.bfloat16)), "x.w is bfloat16[3] here and float32[3] in the save"),
        (Mutable({"a": jnp.zeros(3)}), "x.w['a'] is not in the save"),
        (Frozen(jnp.zeros(3)), "x.n is in the save and not here"),
    ],
)
def test_an_object_that_does_not_agree_is_left_alone_and_said(present, why):
    before = jax.tree.leaves(present)
    assignment, found = placed(saved(x=Mutable(jnp.ones(3)), y=1), {"x": present, "y": Mutable(1)})
    assert found == {}
    assert assignment.kept == [why, "y is a Mutable here and a int in the save"]
    assert all(one is other for one, other in zip(jax.tree.leaves(present), before, strict=True))


def test_what_there_is_no_object_for_is_a_dictionary_and_said():
    assignment, found = placed(saved(x=Mutable(jnp.ones(3)), y=(Pair(1, 2),)), {"y": 7})
    assert found["x"].keys() == {".w", ".n"}
    assert found["y"] == ({".first": 1, ".second": 2},)
    assert {name: each.rpartition(".")[2] for name, each in assignment.dictionaries.items()} == {
        "x": "Mutable",
        "y": "Pair",
    }
    assert assignment.replaced == ["y"]


def test_aliases_and_what_holds_itself_stay_so():
    cycle: list[Any] = [Mutable(jnp.ones(2))]
    cycle.append(cycle)
    shared = {"m": Pair(1, 2)}
    present = {"c": [Mutable(jnp.zeros(2)), 0], "a": {"m": Pair(0, 0)}, "b": [{"m": Pair(0, 0)}]}
    _, found = placed(saved(c=cycle, a=shared, b=[shared]), present)
    assert found["c"][1] is found["c"]
    assert found["c"][0] is present["c"][0]
    assert found["a"] is found["b"][0]
    assert found["a"]["m"] == Pair(1, 2)


def test_a_name_that_is_reserved_is_not_set():
    assignment, found = placed(saved(In=1, x=2), {}, lambda name: "is IPython's own" if name == "In" else "")
    assert found == {"x": 2}
    assert assignment.kept == ["In is IPython's own"]
