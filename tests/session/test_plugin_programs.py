"""pathwaysutils' own functions, unmodified, through a session on the embedded cluster, and Orbax on top of them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

DEADLINE = 110.0

BEGIN = """
import datetime, functools
import jax, jax.numpy as jnp, numpy as np
from etils import epath
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import session as sessions

session = sessions.connect({config!r})
devices = np.array(jax.devices())
mesh = Mesh(devices.reshape(2, 4), ("slice", "chip"))
seconds = datetime.timedelta(seconds=30)

def raises(call, *texts):
    try:
        call()
    except Exception as error:
        assert all(text in str(error) for text in texts), error
    else:
        raise AssertionError(f"no error with {{texts}}")
"""

END = """
session.disconnect()
print("done")
"""

PERSISTENCE = """
from pathwaysutils.persistence import helper

cases = {
    "sharded": (np.arange(64, dtype=np.float32).reshape(8, 8), P("slice", "chip")),
    "half": (np.arange(16).astype(jnp.bfloat16).reshape(16, 1), P("chip")),
    "replicated": (np.arange(5, dtype=np.int8), P()),
    "scalar": (np.float32(7), P()),
}
names = list(cases)
arrays = [jax.device_put(value, NamedSharding(mesh, spec)) for value, spec in cases.values()]
helper.write_arrays("gs://pathways-local/first", names, arrays, seconds).result()

# Another mesh, the other way round.
other = Mesh(devices[::-1].reshape(4, 2), ("x", "y"))
shardings = [NamedSharding(other, spec) for spec in (P("y", "x"), P("x"), P(), P())]

def read(location, names, arrays, shardings, mesh):
    dtypes, shapes = [each.dtype for each in arrays], [each.shape for each in arrays]
    return helper.read_arrays(location, names, dtypes, shapes, shardings, mesh.devices, seconds)

found, done = read("gs://pathways-local/first", names, arrays, shardings, other)
done.result()
for array, again, sharding in zip(arrays, found, shardings):
    assert again.sharding == sharding and again.dtype == array.dtype
    np.testing.assert_array_equal(np.asarray(array), np.asarray(again))
    assert float(jnp.sum(again.astype(jnp.float32))) == float(jnp.sum(array.astype(jnp.float32)))

one = Mesh(devices[5:6], ("only",))
(single,), done = read("gs://pathways-local/first", names[:1], arrays[:1], [NamedSharding(one, P())], one)
done.result()
assert single.devices() == {devices[5]}
np.testing.assert_array_equal(np.asarray(single), np.asarray(arrays[0]))

def written(location):
    helper.write_arrays(location, names, arrays, seconds).result()

def read_first(names, arrays):
    read("gs://pathways-local/first", names, arrays, shardings[:1], other)[1].result()

raises(lambda: written("gs://no-such-bucket/x"), "no-such-bucket")
raises(lambda: written("/tmp/x"), "not a location in a bucket")
raises(lambda: read_first(["none"], arrays[:1]), "NOT_FOUND", "first/none")
raises(lambda: read_first(names[:1], arrays[1:2]), "INVALID_ARGUMENT", "float32[8, 8], and bfloat16[16, 1]")
"""

RESHARD = """
from pathwaysutils.experimental import reshard

value = np.arange(64, dtype=np.float32).reshape(8, 8)
tree = {"a": jax.device_put(value, NamedSharding(mesh, P("slice", "chip"))), "b": jax.device_put(value + 1, devices[0])}
first, second = Mesh(devices[:4], ("x",)), Mesh(devices[4:].reshape(2, 2), ("x", "y"))
for cached in (False, True, True):
    targets = {"a": NamedSharding(second, P("y", "x")), "b": NamedSharding(first, P("x"))}
    moved = reshard.reshard(tree, targets, cache_resharding_plans=cached)
    assert moved["a"].sharding == NamedSharding(second, P("y", "x"))
    assert moved["b"].sharding == NamedSharding(first, P("x"))
    np.testing.assert_array_equal(np.asarray(moved["a"]), value)
    np.testing.assert_array_equal(np.asarray(moved["b"]), value + 1)
    assert float(jnp.sum(moved["a"])) == value.sum()
assert not tree["a"].is_deleted()
whole = reshard.sidechannel_reshard_with_intermediate_sharding(
    moved["b"], moved["b"].sharding, NamedSharding(second, P("x", "y"))
)
np.testing.assert_array_equal(np.asarray(whole), value + 1)
back = reshard.reshard(moved["b"], NamedSharding(second, P("x")), donate=True)
np.testing.assert_array_equal(np.asarray(back), value + 1)
raises(lambda: jnp.sum(moved["b"]).block_until_ready(), "deleted")
"""

ORBAX = """
import pathwaysutils
import orbax.checkpoint as ocp
from orbax.checkpoint import type_handlers
from orbax.checkpoint._src.serialization import cloud_pathways_array_handler

pathwaysutils.initialize()
assert isinstance(type_handlers.get_type_handler(jax.Array), cloud_pathways_array_handler.CloudPathwaysArrayHandler)
state = {
    "w": jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, P("slice", "chip"))),
    "b": jax.device_put(np.arange(8).astype(jnp.bfloat16), NamedSharding(mesh, P("chip"))),
    "step": jax.device_put(np.int32(3), NamedSharding(mesh, P())),
}
path = epath.Path(session.bucket) / "checkpoints"
# Orbax's other format cannot be used with Pathways.
handler = lambda: ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=False)
with ocp.Checkpointer(handler()) as checkpointer:
    checkpointer.save(path / "one", args=ocp.args.PyTreeSave(state))
    def restore(abstract):
        args = ocp.checkpoint_utils.construct_restore_args(abstract)
        return checkpointer.restore(path / "one", args=ocp.args.PyTreeRestore(abstract, restore_args=args))

    other = Mesh(devices[4:].reshape(2, 2), ("x", "y"))
    targets = jax.tree.map(lambda x: NamedSharding(other, P("x", "y") if x.ndim == 2 else P()), state)
    abstract = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, targets)
    restored = restore(abstract)
    for name in state:
        assert restored[name].sharding == targets[name]
        np.testing.assert_array_equal(np.asarray(restored[name]), np.asarray(state[name]))
    abstract["w"] = jax.ShapeDtypeStruct((4, 4), np.float32, sharding=targets["w"])
    raises(lambda: restore(abstract), "one/w is float32[8, 8], and float32[4, 4]")
"""


def check(config, code: str, **environ: str) -> None:
    script = BEGIN.format(config=config(2)) + textwrap.dedent(code) + END
    environment = {**os.environ, **environ}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.stdout == "done\n", done.stderr[-4000:]


@pytest.mark.parametrize("code", [PERSISTENCE, RESHARD], ids=["persistence", "reshard"])
def test_it_gives_right_values_and_shardings_and_errors_for_what_is_missing(config, code):
    check(config, code)


def test_orbax_saves_and_restores_from_the_hosts(config):
    check(config, ORBAX, ENABLE_PATHWAYS_PERSISTENCE="1")
