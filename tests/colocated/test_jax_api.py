"""JAX's own colocated Python, as its documentation describes it, on the embedded cluster."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import colocated_python
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


@pytest.fixture
def cpus(cpu_mesh):
    return list(cpu_mesh.devices.flat)


def test_every_chip_has_a_cpu_device_beside_it(mesh, cpus) -> None:
    assert len({cpu.id for cpu in cpus}) == mesh.size
    for chip, cpu in zip(mesh.devices.flat, cpus, strict=True):
        assert cpu.device_kind == "cpu"
        assert cpu.colocation_id == chip.colocation_id
        assert cpu.slice_index == chip.slice_index


def test_a_function_runs_where_its_argument_is(cpus) -> None:
    @colocated_python.colocated_python
    def add_one(x):
        return x + 1

    x = jax.device_put(np.arange(3), cpus[5])
    once = add_one(x)
    twice = add_one(once)
    np.testing.assert_array_equal(twice, [2, 3, 4])
    assert twice.devices() == {cpus[5]}


def test_arguments_and_results_are_trees(cpus) -> None:
    @colocated_python.colocated_python
    def negate(tree):
        return jax.tree.map(lambda leaf: -leaf, tree)

    tree = jax.device_put({"a": np.arange(2.0), "b": (np.float32(3), [np.int32(4)])}, cpus[0])
    result = jax.device_get(negate(tree))
    assert jax.tree.structure(result) == jax.tree.structure(tree)
    assert result["b"][1][0] == -4


def test_one_function_takes_arguments_of_several_shapes(cpus) -> None:
    @colocated_python.colocated_python
    def double(x):
        return x * 2

    for shape in [(), (3,), (2, 2)]:
        np.testing.assert_array_equal(double(jax.device_put(np.ones(shape), cpus[1])), 2 * np.ones(shape))


def test_a_closure_travels_with_its_values(cpus) -> None:
    factor, table = 3, {"offset": np.arange(4)}

    def shift(x):
        return x + table["offset"]

    @colocated_python.colocated_python
    def scale(x):
        return shift(x) * factor

    np.testing.assert_array_equal(scale(jax.device_put(np.zeros(4, int), cpus[0])), [0, 3, 6, 9])


def test_a_function_without_arguments_needs_devices(cpus) -> None:
    sharding = jax.sharding.SingleDeviceSharding(cpus[2])

    @colocated_python.colocated_python
    def make():
        return jax.device_put(np.float32(7), sharding)

    with pytest.raises(ValueError, match="No devices found"):
        make()
    assert float(make.specialize(devices=[cpus[2]])()) == 7


def test_calls_of_one_thread_run_in_their_order(cpus) -> None:
    x = jax.device_put(np.int32(0), cpus[0])

    def step(number):
        @colocated_python.colocated_python
        def run(x):
            import sys

            sys.__dict__.setdefault("_test_order", []).append(number)
            return x

        return run.specialize(out_specs_fn=lambda x: x)

    @colocated_python.colocated_python
    def seen(x):
        import sys

        return x + int("".join(map(str, sys.__dict__.pop("_test_order"))))

    for function in [step(number) for number in (1, 2, 3, 4)]:
        function(x)
    assert int(seen(x)) == 1234


def test_calls_of_several_threads_run_at_the_same_time(cpus) -> None:
    x = jax.device_put(np.int32(0), cpus[0])

    @colocated_python.colocated_python
    def meet(x):
        import sys
        import threading

        sys.__dict__.setdefault("_test_barrier", threading.Barrier(3)).wait(60)
        return x + 1

    meet = meet.specialize(out_specs_fn=lambda x: x)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(int(meet(x)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1, 1, 1]


def test_computations_go_on_while_a_function_runs(mesh, cpus) -> None:
    x = jax.device_put(np.int32(0), cpus[0])

    @colocated_python.colocated_python
    def blocked(x):
        import sys
        import threading

        sys.__dict__.setdefault("_test_while", threading.Event()).wait(60)
        return x + 1

    @colocated_python.colocated_python
    def release(x):
        import sys
        import threading

        sys.__dict__.setdefault("_test_while", threading.Event()).set()
        return x

    running = blocked.specialize(out_specs_fn=lambda x: x)(x)
    y = jax.device_put(jnp.arange(16.0), NamedSharding(mesh, P("x")))
    for _ in range(3):
        y = jax.jit(lambda y: y * 2)(y)
    assert float(y[1]) == 8
    assert not running.is_ready()
    thread = threading.Thread(target=lambda: release(x).block_until_ready())
    thread.start()
    assert int(running) == 1
    thread.join()


def test_inputs_may_name_their_devices_in_different_orders(cpus) -> None:
    first = jax.sharding.Mesh(np.array(cpus[:2]), "x")
    second = jax.sharding.Mesh(np.array(cpus[1::-1]), "x")

    @colocated_python.colocated_python
    def add(x, y):
        by_device = {shard.device: shard.data for shard in x.addressable_shards}
        shards = [by_device[shard.device] + shard.data for shard in y.addressable_shards]
        return jax.make_array_from_single_device_arrays(y.shape, y.sharding, shards)

    add = add.specialize(devices=cpus[:2])
    x = jax.device_put(np.array([1, 2]), NamedSharding(first, P("x")))
    y = jax.device_put(np.array([10, 20]), NamedSharding(second, P("x")))
    result = add(x, y)
    assert result.sharding == y.sharding
    np.testing.assert_array_equal(result, [12, 21])


def test_prng_keys_go_in_and_out(cpus) -> None:
    @colocated_python.colocated_python
    def split(key):
        return jax.random.split(key)

    key = jax.device_put(jax.random.key(7), cpus[0])
    keys = split(key)
    assert jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(jax.random.split(jax.random.key(7))))


def test_strings_go_in_and_out(cpus) -> None:
    mesh = jax.sharding.Mesh(np.array(cpus[:2]), "x")

    @colocated_python.colocated_python
    def upper(x):
        import numpy

        shards = [
            jax.device_put(numpy.strings.upper(jax.device_get(shard.data)), shard.device)
            for shard in x.addressable_shards
        ]
        return jax.make_array_from_single_device_arrays(x.shape, x.sharding, shards)

    texts = np.array(["one", "zwei", "trois", "ο"], dtype=np.dtypes.StringDType())
    result = upper(jax.device_put(texts, NamedSharding(mesh, P("x"))))
    assert jax.device_get(result).tolist() == ["ONE", "ZWEI", "TROIS", "Ο"]


def test_an_exception_comes_back_with_its_remote_traceback(cpus) -> None:
    def deeper(x):
        raise ValueError("the reason")

    @colocated_python.colocated_python
    def failing(x):
        return deeper(x)

    x = jax.device_put(np.ones(1), cpus[0])
    with pytest.raises(jax.errors.JaxRuntimeError, match="the reason") as caught:
        jax.block_until_ready(failing(x))
    assert "in deeper" in str(caught.value)
    asynchronous = failing.specialize(out_specs_fn=lambda x: x)(x)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the reason"):
        asynchronous.block_until_ready()
    # Nothing is left broken.
    np.testing.assert_array_equal(x, [1])


def test_a_wrong_output_spec_is_an_error_of_the_call(cpus) -> None:
    @colocated_python.colocated_python
    def grow(x):
        return jnp.concatenate([x, x])

    wrong = grow.specialize(out_specs_fn=lambda x: x)(jax.device_put(np.ones(2, np.float32), cpus[0]))
    with pytest.raises(jax.errors.JaxRuntimeError):
        wrong.block_until_ready()


def test_a_mesh_of_chips_does_not_travel(mesh, cpus) -> None:
    sharding = NamedSharding(mesh, P())

    @colocated_python.colocated_python
    def make():
        return jax.make_array_from_callback((), sharding, lambda _: np.array(0))

    with pytest.raises(Exception, match="Invalid device ID"):
        jax.block_until_ready(make.specialize(devices=cpus)())


def test_sharded_arrays_assemble(cpu_mesh) -> None:
    @colocated_python.colocated_python
    def scale(x):
        shards = [shard.data * (1 + shard.index[0].start) for shard in x.addressable_shards]
        return jax.make_array_from_single_device_arrays(x.shape, x.sharding, shards)

    x = jax.device_put(np.ones((16, 2), np.float32), NamedSharding(cpu_mesh, P("x")))
    np.testing.assert_array_equal(np.asarray(scale(x))[:, 0], np.arange(1, 17))


def test_an_object_keeps_its_state_between_calls(cpus) -> None:
    @colocated_python.colocated_python_class
    class Counter:
        def __init__(self, start):
            self.count = start

        def add(self, x):
            self.count += int(x)
            return jax.device_put(np.int32(self.count), x.sharding)

        def like(self, x):
            return jax.device_put(np.int32(self.count), x.sharding)

    counter = Counter(10)
    x = jax.device_put(np.int32(2), cpus[0])
    assert [int(counter.add(x)) for _ in range(3)] == [12, 14, 16]
    assert int(counter.like(x)) == 16


def test_an_object_is_made_by_its_first_call_and_goes_with_its_handle(cpus) -> None:
    x = jax.device_put(np.int32(0), cpus[0])

    @colocated_python.colocated_python_class
    class Noted:
        def __init__(self):
            import sys

            sys._test_alive = getattr(sys, "_test_alive", 0) + 1

        def __del__(self):
            import sys

            sys._test_alive -= 1

        def echo(self, x):
            return x

    @colocated_python.colocated_python
    def alive(x):
        import sys

        return x + getattr(sys, "_test_alive", 0)

    noted = Noted()
    assert int(alive(x)) == 0
    jax.block_until_ready(noted.echo(x))
    assert int(alive(x)) == 1
    del noted
    assert int(alive(x)) == 0


def test_methods_can_be_specialized(cpus) -> None:
    sharding = jax.sharding.SingleDeviceSharding(cpus[0])

    @colocated_python.colocated_python_class
    class Source:
        def __init__(self, sharding):
            self.sharding = sharding

        def fetch(self):
            return jax.device_put(np.int32(5), self.sharding)

    source = Source(sharding)
    source.fetch = source.fetch.specialize(
        devices=cpus[:1], out_specs_fn=lambda: jax.ShapeDtypeStruct((), np.int32, sharding=sharding)
    )
    assert int(source.fetch()) == 5
