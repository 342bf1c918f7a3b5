"""JAX arrays as a cell's variables: what goes to the hosts, and what comes back."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from cells import values
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pathways_jupyter.colocated import cell_run
from pathways_jupyter.colocated.errors import CheckError, ColocatedError
from pathways_jupyter.colocated.trees import PerHost

pytestmark = pytest.mark.usefixtures("connection", "fresh_names")

DOUBLED = """
import jax
z = jax.make_array_from_single_device_arrays(x.shape, x.sharding, [s.data * 2 for s in x.addressable_shards])
"""


def test_outputs_assemble_to_the_right_global_array_on_the_same_chips(x) -> None:
    result = cell_run.run_cell(DOUBLED, inputs={"x": x}, outputs=["z"])
    assert result.error() is None
    z = result.outputs["z"]
    assert z.sharding == x.sharding
    np.testing.assert_array_equal(z, 2 * np.asarray(x))
    np.testing.assert_array_equal(jax.jit(lambda x, z: x + z)(x, z), 3 * np.asarray(x))


def test_arrays_inside_of_variables_keep_their_sharding_both_ways(x, mesh) -> None:
    params = {"w": x, "rest": [jax.device_put(np.arange(3), NamedSharding(mesh, P())), 0.5, "name"]}
    source = """
import jax, numpy as np
def local(array): return [shard.data * 2 for shard in array.addressable_shards]
doubled = {
    "w": jax.make_array_from_single_device_arrays(params["w"].shape, params["w"].sharding, local(params["w"])),
    "same": (params["rest"][0], np.arange(2.0)),
}
params["rest"][1:], [shard.data.shape for shard in params["w"].addressable_shards]
"""
    result = cell_run.run_cell(source, inputs={"params": params}, outputs=["doubled"])
    assert result.error() is None
    assert result.values == dict.fromkeys(range(4), ([0.5, "name"], [(1, 2)] * 4))
    doubled = result.outputs["doubled"]
    assert doubled["w"].sharding == x.sharding
    np.testing.assert_array_equal(doubled["w"], 2 * np.asarray(x))
    assert doubled["same"][0].sharding == params["rest"][0].sharding
    np.testing.assert_array_equal(doubled["same"][1], [0.0, 1.0] * 4)


def test_a_variable_that_is_built_differently_on_hosts_is_refused() -> None:
    source = """
import jax, numpy as np
z = {"a": np.ones(2)} if jax.process_index() else {"a": np.ones(2), "b": np.ones(2)}
"""
    with pytest.raises(ColocatedError, match=r"host 0: z\['a'\], z\['b'\]; host 1: z\['a'\]"):
        cell_run.run_cell(source, outputs=["z"])
    source = "import jax, numpy as np\nz = [np.ones(2)] if jax.process_index() else (np.ones(2),)"
    with pytest.raises(ColocatedError, match=r"z is not built in the same way on host 0 and hosts 1-3"):
        cell_run.run_cell(source, outputs=["z"])


def test_outputs_may_stay_on_the_hosts_cpus(x, cpu_mesh) -> None:
    z = cell_run.run_cell(DOUBLED, inputs={"x": x}, outputs=["z"], on_cpu=True).outputs["z"]
    assert z.sharding == NamedSharding(cpu_mesh, P("x"))


def test_what_every_host_has_for_itself_comes_back_as_one_array() -> None:
    result = cell_run.run_cell(
        "import jax, numpy as np\nlocal = np.full((4, 3), jax.process_index())\none = jax.process_index()",
        outputs=["local", "one"],
    )
    local = result.outputs["local"]
    np.testing.assert_array_equal(local, np.repeat(np.arange(4), 4)[:, None] * np.ones((1, 3), int))
    assert len(local.sharding.device_set) == 16
    np.testing.assert_array_equal(result.outputs["one"], [0, 1, 2, 3])


def test_outputs_that_differ_across_hosts_are_refused_with_what_each_has() -> None:
    with pytest.raises(ColocatedError, match=r"float64\[2\] on host 0.*float64\[3\] on hosts 1-3"):
        cell_run.run_cell("import jax, numpy as np\nz = np.ones(2 if jax.process_index() == 0 else 3)", outputs=["z"])


def test_several_kinds_of_arrays_go_in(x, mesh) -> None:
    inputs = {
        "x": x,
        "replicated": jax.device_put(np.arange(3), NamedSharding(mesh, P())),
        "uncommitted": jax.numpy.arange(4),
        "key": jax.device_put(jax.random.key(1), NamedSharding(mesh, P())),
        "half": jax.device_put(np.ones(2, jax.numpy.bfloat16), NamedSharding(mesh, P())),
        "plain": {"a": [1, 2]},
    }
    source = """
import jax, numpy as np
(x.shape, np.asarray(replicated).tolist(), np.asarray(uncommitted).tolist(),
 jax.random.key_data(key).tolist(), str(half.dtype), plain)
"""
    expected = ((16, 2), [0, 1, 2], [0, 1, 2, 3], [0, 1], "bfloat16", {"a": [1, 2]})
    assert values(source, inputs=inputs) == dict.fromkeys(range(4), expected)


def test_what_lies_on_no_device_is_each_hosts_own_and_can_be_computed_with(x) -> None:
    inputs = {"x": x, "scale": jax.numpy.float32(3), "key": jax.random.key(7)}
    source = """
import re

import jax
shards = [(shard.data * scale).tolist() for shard in x.addressable_shards]
drawn = jax.random.uniform(key, (2,)).tolist()
(shards, drawn)
"""
    found = values(source, inputs=inputs)
    drawn = jax.random.uniform(jax.random.key(7), (2,)).tolist()
    for host in range(4):
        assert found[host] == ([[row] for row in (3 * np.asarray(x)).tolist()[4 * host : 4 * host + 4]], drawn)


def test_keys_and_strings_may_lie_on_other_devices_than_the_other_inputs(x, mesh, cpu_mesh) -> None:
    words = np.array([["a", "bb"], ["", "ü"]], np.dtypes.StringDType())
    inputs = {
        "x": x,
        "key": jax.device_put(jax.random.key(5), mesh.devices[4]),
        "keys": jax.device_put(jax.random.split(jax.random.key(6, impl="rbg"), 8), NamedSharding(half(mesh), P("x"))),
        "words": jax.device_put(words, cpu_mesh.devices[5]),
    }
    source = """
import jax, numpy as np
mine = {
    name: [(shard.data.shape, np.asarray(data(shard.data)).tolist()) for shard in array.addressable_shards]
    for name, array, data in (
        ("key", key, jax.random.key_data), ("keys", keys, jax.random.key_data), ("words", words, lambda x: x)
    )
}
mine
"""
    result = cell_run.run_cell(source, inputs=inputs, outputs=["key", "keys", "words"])
    assert result.error() is None
    numbers = {name: np.asarray(jax.random.key_data(inputs[name])).tolist() for name in ("key", "keys")}
    for host, found in result.values.items():
        assert found["key"] == ([((), numbers["key"])] if host == 1 else [])
        assert found["words"] == ([((2, 2), words.tolist())] if host == 1 else [])
        assert found["keys"] == [((1,), [row]) for row in numbers["keys"][4 * host : 4 * host + 4]]
    for name, array in result.outputs.items():
        assert array.dtype == inputs[name].dtype
        assert array.sharding == inputs[name].sharding
        assert array.shape == inputs[name].shape
    assert np.asarray(jax.random.key_data(result.outputs["keys"])).tolist() == numbers["keys"]
    assert np.asarray(result.outputs["words"]).tolist() == words.tolist()


def half(mesh):
    return jax.sharding.Mesh(mesh.devices[:8], ("x",))


def test_keys_and_strings_that_a_host_makes_come_back() -> None:
    source = """
import jax, numpy as np
mine = jax.random.fold_in(jax.random.key(1), jax.process_index())
words = np.array(["host", str(jax.process_index())])
"""
    arrays = cell_run.run_cell(source, outputs=["mine", "words"]).outputs
    expected = [jax.random.key_data(jax.random.fold_in(jax.random.key(1), host)).tolist() for host in range(4)]
    assert jax.random.key_data(arrays["mine"]).tolist() == expected
    assert np.asarray(arrays["words"]).tolist() == ["host", "0", "host", "1", "host", "2", "host", "3"]


@pytest.mark.parametrize("kind", ["'datetime64[s]'", "object"])
def test_an_array_of_a_kind_that_jax_does_not_have_comes_back_as_a_value(kind) -> None:
    z = cell_run.run_cell(f"import numpy as np\nz = np.array([None], {kind})", outputs=["z"]).outputs["z"]
    assert isinstance(z, np.ndarray)
    np.testing.assert_array_equal(z, np.array([None], kind.strip("'")))


VALUES = """
import jax, dataclasses
@dataclasses.dataclass
class Config:
    rate: float
text, numbers, config = "here", {"a": 1.0, "b": (2, None)}, Config(0.5)
nothing = None
mine = {"host": jax.process_index(), "same": "x"}
"""


def test_any_value_that_can_be_pickled_comes_back_from_hosts_that_are_trusted() -> None:
    found = cell_run.run_cell(VALUES, outputs=["text", "numbers", "config", "nothing"], unpickle=True).outputs
    assert (found["text"], found["numbers"], found["nothing"]) == ("here", {"a": 1.0, "b": (2, None)}, None)
    assert {host: each.rate for host, each in found["config"].items()} == dict.fromkeys(range(4), 0.5)


def test_a_dict_may_have_keys_of_several_types() -> None:
    outputs = cell_run.run_cell(
        "import jax\nz, mine = {1: 2, 'a': 3}, {1: jax.process_index(), 'a': 3}", outputs=["z", "mine"]
    ).outputs
    assert outputs == {"z": {1: 2, "a": 3}, "mine": {host: {1: host, "a": 3} for host in range(4)}}


def test_a_value_that_is_not_the_same_on_all_hosts_comes_back_by_host() -> None:
    (mine,) = cell_run.run_cell(VALUES, outputs=["mine"]).outputs.values()
    assert isinstance(mine, PerHost)
    assert mine == {host: {"host": host, "same": "x"} for host in range(4)}
    once = cell_run.run_cell(VALUES, outputs=["mine"], once=True).outputs["mine"]
    assert once == {"host": 0, "same": "x"}


def test_values_beside_arrays_come_back_with_them(x) -> None:
    source = "import jax\nz = {'x': x, 'name': 'all', 'rate': 0.5}\nown = {'x': x, 'host': jax.process_index()}"
    found = cell_run.run_cell(source, inputs={"x": x}, outputs=["z", "own"]).outputs
    np.testing.assert_array_equal(found["z"]["x"], np.asarray(x))
    assert found["z"]["x"].sharding == x.sharding
    assert (found["z"]["name"], found["z"]["rate"]) == ("all", 0.5)
    assert [each["host"] for each in found["own"].values()] == [0, 1, 2, 3]
    assert all(each["x"] is found["own"][0]["x"] for each in found["own"].values())


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("{'a': [1, threading.Lock()]}", r"z\['a'\]\[1\] is a lock, which cannot be sent back"),
        ("threading.Lock()", "z is a lock, which cannot be sent back"),
        ("{'log': open('/dev/null')}", r"z\['log'\] is an open file, which stays where it is"),
    ],
)
def test_what_cannot_be_sent_back_is_named_by_its_place(value, named) -> None:
    error = cell_run.run_cell(f"import threading\nz = {value}", outputs=["z"], unpickle=True).error()
    assert re.search(named, str(error)), error


def test_an_array_that_was_deleted_is_named() -> None:
    x = jax.numpy.arange(3)
    x.delete()
    with pytest.raises(CheckError, match="x has no data any more"):
        cell_run.run_cell("1", inputs={"x": x})


def test_a_cell_runs_where_its_input_is(connection) -> None:
    x = jax.device_put(np.arange(3), connection.slices()[1][0])
    assert list(values("x.tolist()", inputs={"x": x})) == [2]


def test_an_input_that_is_also_elsewhere_is_refused(x) -> None:
    with pytest.raises(CheckError, match="x lies on other hosts than host 0 too"):
        cell_run.run_cell("1", inputs={"x": x}, hosts=[0])


def test_a_number_that_jax_cannot_hold_here_comes_back_as_it_is() -> None:
    source = """
import jax, numpy as np
host = jax.process_index()
small, big, own, some = 7, 3_000_000_000, 2**40 + host, 5 if host == 0 else np.int64(2**40)
fraction, far = 0.1, np.float64(1e300)
"""
    outputs = cell_run.run_cell(source, outputs=["small", "big", "own", "some", "fraction", "far"]).outputs
    np.testing.assert_array_equal(outputs["small"], [7] * 4)
    assert (outputs["big"], outputs["far"]) == (3_000_000_000, 1e300)
    assert outputs["own"] == PerHost({host: 2**40 + host for host in range(4)})
    assert outputs["some"] == PerHost({0: 5, 1: 2**40, 2: 2**40, 3: 2**40})
    # Fractions are rounded, as wherever JAX has 32 bits.
    np.testing.assert_array_equal(outputs["fraction"], np.float32([0.1] * 4))


@pytest.mark.parametrize("value", ["np.array([1, 2**40])", "{'a': np.array([2**40])}", "np.array([1e300, np.inf])"])
def test_an_array_that_jax_cannot_hold_here_is_refused(value) -> None:
    with pytest.raises(
        ColocatedError, match=r"Output z.* holds values of (int|float)64 on hosts 0-3 that (int|float)32 cannot hold"
    ):
        cell_run.run_cell(f"import numpy as np\nz = {value}", outputs=["z"])
    outputs = cell_run.run_cell("z = np.array([1.5, np.inf, np.nan])", outputs=["z"]).outputs
    np.testing.assert_array_equal(outputs["z"], [1.5, np.inf, np.nan] * 4)


def test_a_notebook_with_64_bits_computes_and_gets_all_of_them() -> None:
    with jax.enable_x64(True):
        given = jax.device_put(np.array([1e300, 0.1]))
        source = """
import jax.numpy as jnp, numpy as np
doubled = x * 2
made, large, number = np.full(2, 0.1), np.array([2**40]), 2**40
"x" if jnp.arange(3).dtype == "int64" else "narrow"
"""
        result = cell_run.run_cell(source, inputs={"x": given}, outputs=["doubled", "made", "large", "number"])
    assert result.error() is None
    assert set(result.values.values()) == {"x"}
    np.testing.assert_array_equal(result.outputs["made"], [0.1] * 8)
    np.testing.assert_array_equal(result.outputs["large"], [2**40] * 4)
    np.testing.assert_array_equal(result.outputs["number"], [2**40] * 4)
    np.testing.assert_array_equal(np.asarray(result.outputs["doubled"]).reshape(-1)[:2], [2e300, 0.2])


def test_a_weak_type_stays_weak_both_ways(x, mesh) -> None:
    lr = jax.numpy.asarray(0.5)
    everywhere = jax.device_put(lr, NamedSharding(mesh, P()))
    inputs = {"lr": lr, "everywhere": everywhere, "x": x}
    kinds = "[(each.weak_type, each.dtype.name) for each in (lr, everywhere, x)]"
    weak, strong = (True, "float32"), (False, x.dtype.name)
    assert list(values(kinds, inputs=inputs).values()) == [[weak, weak, strong]] * 4
    source = """
import jax.numpy as jnp
halves = jnp.ones(3, jnp.bfloat16) * lr
rates, rate, count = {"lr": lr, "same": everywhere}, 0.25, jnp.float32(3)
halves.dtype.name
"""
    result = cell_run.run_cell(source, inputs=inputs, outputs=["rates", "rate", "everywhere", "x", "count"])
    assert result.error() is None
    assert result.values == dict.fromkeys(range(4), "bfloat16")
    out = result.outputs
    found = [each.weak_type for each in (*out["rates"].values(), out["rate"], out["everywhere"], out["x"])]
    assert found == [True, True, True, True, False]
    assert not out["count"].weak_type
    assert (
        jax.device_put(jax.numpy.ones(1, "bfloat16"), out["everywhere"].sharding) * out["everywhere"]
    ).dtype.name == ("bfloat16")


def test_a_weak_type_of_an_array_on_some_hosts_stays_weak(mesh) -> None:
    one = jax.device_put(jax.numpy.asarray(0.5), mesh.devices.flat[0])
    everywhere = jax.device_put(jax.numpy.arange(16.0), NamedSharding(mesh, P("x")))
    assert values("(one.weak_type, one.shape)", inputs={"one": one, "rest": everywhere})[0] == (True, ())
