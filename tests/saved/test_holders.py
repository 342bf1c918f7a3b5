"""Every holder of an array is found by asking the heap: it holds another one afterwards, or is named before."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import functools
import gc
import itertools
import queue
import sys
import threading
import types
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathways_jupyter.saved.heap import LOCALS_CAN_BE_SET, Heap
from pathways_jupyter.saved.holders import OUTSIDE, Holders, described


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


class Named(tuple):
    """A tuple with attributes of its own."""


def named_tuple(array):
    made = Named((array,))
    made.label = "kept"
    return made


def closed_over(array):
    return lambda: array


def with_default(array):
    def returned(x=array):
        return x

    return returned


def with_keyword_default(array):
    def returned(*, x=array):
        return x

    return returned


def class_attribute(array):
    class Config:
        W = array

    return Config


def module(array):
    made = types.ModuleType("constants")
    made.MASK = array
    return made


def unbounded_cache(array):
    box = [array]

    @functools.cache
    def cached():
        return box.pop()

    cached()
    return cached


def elements(array):
    made = np.empty((2, 2), object)
    made[1, 0] = array
    return made


def element(array):
    made = np.empty(1, object)
    made[0] = array
    return made.reshape(())


def thread_local(array):
    made = threading.local()
    made.x = array
    return made


def queued(array):
    made = queue.Queue()
    made.put(array)
    return made


def cycled(array):
    made = itertools.cycle([array])
    next(made)
    return made


def weakly(array):
    made = weakref.WeakKeyDictionary()
    key = Model(1)
    made[key] = array
    return made, key


def chained(array):
    error = ValueError("with an array", array)
    error.__cause__ = KeyError(array)
    return error


CHANGED = {
    "variable": (lambda a: a, lambda h: h),
    "list": (lambda a: [1, [a]], lambda h: h[1][0]),
    "dict": (lambda a: {"x": {"y": a}}, lambda h: h["x"]["y"]),
    "ordered": (lambda a: collections.OrderedDict(x=a), lambda h: h["x"]),
    "default dict": (lambda a: collections.defaultdict(list, x=a), lambda h: h["x"]),
    "chain of maps": (lambda a: collections.ChainMap({"x": a}), lambda h: h["x"]),
    "deque": (lambda a: collections.deque([a]), lambda h: h[0]),
    "tuple": (lambda a: (1, (a,)), lambda h: h[1][0]),
    "twice in a tuple": (lambda a: (a, a), lambda h: h[0] if h[0] is h[1] else None),
    "named tuple": (lambda a: State(a, {"x": 1}), lambda h: h.mu),
    "tuple with attributes": (named_tuple, lambda h: h[0] if h.label == "kept" else None),
    "frozen": (Frozen, lambda h: h.w),
    "slotted": (Slotted, lambda h: h.w),
    "object": (Model, lambda h: h.me.w),
    "object in a set": (lambda a: {Model(a)}, lambda h: next(iter(h)).w),
    "namespace": (lambda a: types.SimpleNamespace(w=a), lambda h: h.w),
    "method": (lambda a: Model(a).loss, lambda h: h()),
    "method of the array": (lambda a: a.sum, lambda h: h.__self__),
    "closure": (closed_over, lambda h: h()),
    "default": (with_default, lambda h: h()),
    "keyword default": (with_keyword_default, lambda h: h()),
    "partial": (lambda a: functools.partial(lambda x: x, a), lambda h: h()),
    "partial's keyword": (lambda a: functools.partial(lambda x: x, x=a), lambda h: h()),
    "partial of a method": (lambda a: functools.partial(Model(a).loss), lambda h: h()),
    "jitted": (lambda a: jax.jit(closed_over(a)), lambda h: h.__wrapped__()),
    "class": (class_attribute, lambda h: h.W),
    "class of an instance": (lambda a: class_attribute(a)(), lambda h: h.W),
    "module": (module, lambda h: h.MASK),
    "cache": (unbounded_cache, lambda h: h()),
    "NumPy": (elements, lambda h: h[1, 0]),
    "NumPy without dimensions": (element, lambda h: h[()]),
    "view of NumPy": (lambda a: elements(a)[1], lambda h: h[0]),
    "thread's own": (thread_local, lambda h: h.x),
    "queue": (queued, lambda h: h.get()),
    "list's iterator": (lambda a: iter([a]), next),
    "zip": (lambda a: zip([a], strict=True), lambda h: next(h)[0]),
    "cycle": (cycled, next),
    "weak dictionary": (weakly, lambda h: h[0][h[1]]),
    "proxy of a mapping": (lambda a: types.MappingProxyType({"x": a}), lambda h: h["x"]),
    "error": (chained, lambda h: h.args[1]),
    "its cause": (chained, lambda h: h.__cause__.args[0]),
    "view of a dictionary": (lambda a: {"x": a}.values(), lambda h: next(iter(h))),
    "keys of jax.random": (lambda a: {"x": [a, jax.random.key(0)]}, lambda h: h["x"][0]),
}


def generator(array):
    def batches(array):
        while True:
            yield array

    made = batches(array)
    next(made)
    return made


@types.coroutine
def _pause():
    yield


async def _sleeps(array):
    await _pause()
    return array


def coroutine(array):
    made = _sleeps(array)
    made.send(None)
    return made


def bounded_cache(array):
    box = [array]

    @functools.lru_cache(maxsize=4)
    def cached():
        return box.pop()

    cached()
    return cached


def future(array):
    made = asyncio.Future(loop=asyncio.new_event_loop())
    made.set_result(array)
    return made


def context_variable(array):
    made = contextvars.ContextVar("made")
    context = contextvars.Context()
    context.run(made.set, array)
    return context


NAMED = {
    "cache": (bounded_cache, "the cache of bounded_cache.<locals>.cached"),
    "iterator": (lambda a: iter((a,)), "held (tuple_iterator)"),
    "repeat": (itertools.repeat, "held (itertools.repeat)"),
    "future": (future, "held (_asyncio.Future)"),
    "coroutine": (coroutine, "coroutine _sleeps"),
    "context": (context_variable, "hamt"),
} | ({} if LOCALS_CAN_BE_SET else {"generator": (generator, "generator generator.<locals>.batches")})
if LOCALS_CAN_BE_SET:
    CHANGED["generator"] = generator, next


@pytest.fixture(autouse=True)
def small_heap():
    """The heap of what the test makes: all else is 200,000 objects, which hold none of its arrays."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", CHANGED)
def test_a_holder_holds_the_new_array(name):
    make, held_by = CHANGED[name]
    arrays, new = [jnp.arange(3.0)], jnp.arange(4.0)
    variables = {"held": make(arrays[0]), "alias": arrays[0]}
    kind, number = type(variables["held"]), id(variables["held"])
    holders = Holders(arrays, variables=(variables,))
    assert holders.fixed == {}
    assert holders.names[id(arrays[0])] in ("alias", "held")
    assert holders.replace(lambda value: new) == {id(arrays[0])}
    assert held_by(variables["held"]) is new
    assert variables["alias"] is new
    assert type(variables["held"]) is kind
    if name != "variable" and not issubclass(kind, (tuple, types.MethodType)):
        assert id(variables["held"]) == number
    del holders
    assert Holders(arrays).held == set()


@pytest.mark.parametrize("name", NAMED)
def test_a_holder_that_cannot_hold_another_is_named_even_where_a_variable_holds_the_array_too(name):
    make, said = NAMED[name]
    arrays = [jnp.arange(3.0)]
    variables = {"held": make(arrays[0]), "alias": arrays[0]}
    holders = Holders(arrays, variables=(variables,))
    found = [described(each, holders.names.get(id(each), "")) for each in holders.fixed[id(arrays[0])]]
    assert any(said in each for each in found), found
    if isinstance(variables["held"], types.CoroutineType):
        variables["held"].close()


def test_what_another_thread_computes_with_is_named():
    arrays, ready, end = [jnp.arange(3.0)], threading.Event(), threading.Event()

    def load(array):
        ready.set()
        end.wait()

    thread = threading.Thread(target=load, args=(arrays[0],), name="loader")
    thread.start()
    ready.wait()
    variables = {"alias": arrays[0]}
    holders = Holders(arrays, variables=(variables,))
    end.set()
    assert "thread loader" in map(described, holders.fixed[id(arrays[0])])


def test_a_variable_of_a_function_that_runs_is_set_or_named():
    arrays, new = [jnp.arange(3.0)], jnp.arange(4.0)
    local = arrays[0]
    holders = Holders(arrays, own=())
    if LOCALS_CAN_BE_SET:
        assert holders.fixed == {}
        holders.replace(lambda value: new)
        assert local is new
    else:
        assert [described(each) for each in holders.fixed[id(local)]] == [
            "a call of test_a_variable_of_a_function_that_runs_is_set_or_named"
        ]


def test_what_only_c_code_holds_is_shown_by_the_count_of_references():
    arrays = [jnp.arange(3.0)]
    # Not a container for the garbage collector, which does not know what it holds.
    capsule = np.array([(arrays[0],)], dtype=[("x", object)])
    (found,) = Holders(arrays).fixed.values()
    assert found == [OUTSIDE]
    del capsule


def test_aliases_and_views_keep_their_identity():
    arrays, new = [jnp.ones(2)], jnp.zeros(2)
    table, pair = {"w": arrays[0]}, (arrays[0], 1)
    variables = {"table": table, "items": [table.items()], "pairs": [pair, pair], "same": table}
    del pair
    table["me"] = table
    Holders(arrays).replace(lambda value: new)
    assert variables["same"] is variables["table"] is table["me"]
    assert dict(variables["items"][0])["w"] is new
    assert variables["pairs"][0] is variables["pairs"][1]
    assert variables["pairs"][0][0] is new


def test_keys_of_dictionaries_and_members_of_sets_are_changed_in_their_order():
    class Device:
        pass

    old, new = [Device()], Device()
    table = {"first": 1, old[0]: 2, "last": 3}
    ordered, members, frozen = collections.OrderedDict(table), {old[0], 1}, [frozenset(old)]
    Holders(old).replace(lambda value: new)
    assert list(table) == list(ordered) == ["first", new, "last"]
    assert members == {new, 1}
    assert frozen == [frozenset([new])]


def test_an_error_that_was_raised_holds_nothing():
    def step(array):
        raise ValueError(array.shape)

    arrays = [jnp.ones((3, 5))]
    with pytest.raises(ValueError, match="3, 5") as raised:
        step(arrays[0])
    assert Holders(arrays).held == set()
    del raised


def test_the_name_is_that_of_the_users_variable_before_that_of_a_module():
    arrays = [jnp.ones(each) for each in range(1, 5)]
    module = types.ModuleType("library")
    module.TABLE = {"a": arrays[0], "b": arrays[1]}
    # As importing one does.
    module.__spec__ = None
    sys.modules["library"] = module
    variables = {"deep": Model(State([arrays[0]], arrays[2])), "run": Model({"w": arrays[3]})}
    try:
        names = Holders(arrays, variables=(variables,)).names
    finally:
        del sys.modules["library"]
    assert [names[id(each)] for each in arrays] == [
        "deep.w.mu[0]",
        "library.TABLE['b']",
        "deep.w.nu",
        "run.w['w']",
    ]


def test_the_heap_does_not_keep_itself():
    arrays = [Model(1)]
    holders = Holders(arrays)
    assert not any(isinstance(each, Heap) for each in gc.get_objects())
    del holders


values = st.recursive(
    st.sampled_from(range(4)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(Frozen, inner)
        | st.builds(Slotted, inner)
        | st.builds(Model, inner)
        | st.builds(State, inner, inner)
        | st.builds(lambda each: functools.partial(max, each, key=each), inner)
        | st.builds(closed_over, inner)
        | st.builds(lambda each: iter((each,)), inner)
        | st.builds(lambda each: collections.deque([each]), inner)
    ),
    max_leaves=12,
)


@given(values)
def test_in_any_heap_nothing_is_left_that_was_not_named(value):
    old = [Model(number) for number in range(4)]
    new = {id(each): Model(each.w) for each in old}
    held = put(value, old)
    gc.collect()
    holders = Holders(old)
    holders.replace(lambda each: new[id(each)])
    fixed = set(holders.fixed)
    del holders
    assert Holders(old, own=(new,)).held <= fixed
    del held


def put(value: Any, objects: list[Any]) -> Any:
    """Return `value` with the objects in place of their numbers."""
    if isinstance(value, int):
        return objects[value]
    if isinstance(value, list):
        return [put(each, objects) for each in value]
    if isinstance(value, State):
        return State(*(put(each, objects) for each in value))
    if isinstance(value, tuple):
        return tuple(put(each, objects) for each in value)
    if isinstance(value, dict):
        return {key: put(each, objects) for key, each in value.items()}
    if isinstance(value, (Frozen, Slotted, Model)):
        return type(value)(put(value.w, objects))
    if isinstance(value, functools.partial):
        return functools.partial(value.func, *put(value.args, objects), **put(value.keywords, objects))
    if isinstance(value, types.FunctionType):
        return closed_over(put(value(), objects))
    if isinstance(value, collections.deque):
        return collections.deque(put(each, objects) for each in value)
    return iter(tuple(put(each, objects) for each in value))
