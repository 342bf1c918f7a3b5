from __future__ import annotations

import gc

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pathways_jupyter import colocated
from pathways_jupyter.colocated.channel import Channel
from pathways_jupyter.colocated.errors import CheckError, ColocatedError, HostError, LostError
from pathways_jupyter.colocated.memory import MEMORY

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture
def x(mesh):
    return jax.device_put(np.arange(16, dtype=np.float32), NamedSharding(mesh, P("x")))


def test_a_function_gets_and_gives_trees_of_arrays_and_values(x) -> None:
    @colocated.function
    def scale(tree, *, by):
        array = tree["x"]
        shards = [shard.data * by for shard in array.addressable_shards]
        return {"x": jax.make_array_from_single_device_arrays(array.shape, array.sharding, shards), "by": (by, "text")}

    result = scale({"x": x}, by=3)
    assert result["by"] == (3, "text")
    assert result["x"].sharding == x.sharding
    np.testing.assert_array_equal(result["x"], 3 * np.arange(16))


def test_each_hosts_own_result_can_be_had() -> None:
    @colocated.function
    def where():
        return jax.process_index()

    assert where.on_each() == {0: 0, 1: 1, 2: 2, 3: 3}
    with pytest.raises(ColocatedError, match="where did not return the same on host 0 and hosts 1-3") as caught:
        where()
    assert "on_each" in caught.value.hint


def test_a_function_runs_where_it_should() -> None:
    @colocated.function(slices=[1], once=True)
    def where():
        return jax.process_index()

    assert where() == 2


def test_what_a_function_prints_is_shown_under_its_host(capsys) -> None:
    @colocated.function(hosts=[1])
    def talk():
        print("hello")

    talk()
    assert capsys.readouterr().out == "[host 1] hello\n"


def test_a_function_that_raises_shows_its_own_lines() -> None:
    @colocated.function
    def fail():
        raise ValueError("no")

    with pytest.raises(HostError, match=r"all 4 hosts, line .*ValueError: no") as caught:
        fail()
    assert 'raise ValueError("no")' in caught.value.remote_traceback()


def test_a_function_that_cannot_be_sent_is_refused() -> None:
    generator = (number for number in range(3))

    @colocated.function
    def use():
        return next(generator)

    with pytest.raises(CheckError, match=r"generator \(generator\), used by use"):
        use()


def test_an_object_lives_on_every_host() -> None:
    @colocated.class_
    class Counter:
        def __init__(self, start):
            self.count = start + jax.process_index()

        def add(self, number):
            self.count += number
            return self.count

    counter = Counter(10)
    assert counter.add.on_each(1) == {0: 11, 1: 12, 2: 13, 3: 14}
    assert counter.add.on_each(1) == {0: 12, 1: 13, 2: 14, 3: 15}
    with pytest.raises(AttributeError, match="only methods"):
        counter.count  # noqa: B018


def test_an_object_keeps_its_state_when_a_call_reaches_more_hosts(connection) -> None:
    @colocated.class_
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self, array=None):
            self.count += 1
            return self.count

    counter, on_first = Counter(), jax.device_put(np.float32(1), connection.slices()[0][0])
    assert counter.add.on_each(on_first) == {0: 1}
    assert counter.add.on_each() == {0: 2, 1: 1, 2: 1, 3: 1}


def test_an_object_outlives_a_method_that_fails_on_some_host() -> None:
    @colocated.class_
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self):
            self.count += 1
            if self.count == 1 and jax.process_index() == 1:
                raise ValueError("mine")
            return self.count

    counter = Counter()
    with pytest.raises(HostError, match="mine"):
        counter.add()
    assert counter.add() == 2


def test_an_object_goes_from_every_host_also_if_the_next_call_is_for_one_of_them() -> None:
    @colocated.class_
    class Noted:
        def __init__(self):
            pass

        def touch(self):
            pass

        def __del__(self):
            import sys

            sys._test_gone = getattr(sys, "_test_gone", 0) + 1

    def gone():
        import sys

        return getattr(sys, "_test_gone", 0)

    noted = Noted()
    noted.touch()
    del noted
    gc.collect()
    assert colocated.function(hosts=[0])(gone).on_each() == {0: 1}
    assert colocated.function(gone).on_each() == {0: 1, 1: 1, 2: 1, 3: 1}


def test_what_a_call_was_to_release_is_released_by_the_next_if_that_call_is_lost(monkeypatch) -> None:
    ask, (first, second, *_) = Channel.ask, colocated.hosts()

    def lose(self, head, *more):
        if head["op"] == "cell":
            raise LostError("mine")
        return ask(self, head, *more)

    monkeypatch.setattr(Channel, "ask", lose)
    MEMORY.release("gone", [first.index, second.index])
    with pytest.raises(LostError, match="mine"):
        colocated.run_cell("1", hosts=[first.index])
    assert MEMORY.take_released([first]) == MEMORY.take_released([second]) == ["gone"]
    assert MEMORY.take_released([first, second]) == []


@pytest.mark.thorough
def test_a_dict_may_have_another_order_on_another_host(x) -> None:
    @colocated.function
    def made(array):
        double = jax.make_array_from_single_device_arrays(
            array.shape, array.sharding, [2 * shard.data for shard in array.addressable_shards]
        )
        return {"a": array, "b": double} if jax.process_index() % 2 else {"b": double, "a": array}

    found = made(x)
    np.testing.assert_array_equal(found["a"], np.arange(16))
    np.testing.assert_array_equal(found["b"], 2 * np.arange(16))
