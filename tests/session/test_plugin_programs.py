"""pathwaysutils' own functions, unmodified, through a session on the embedded cluster, and Orbax on top of them."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

import pytest
import scripts

pytestmark = pytest.mark.thorough

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
    done = scripts.run(script, PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **environ)
    assert done.stdout.endswith("done\n"), done.stderr[-4000:]


@pytest.mark.parametrize("code", [PERSISTENCE, RESHARD], ids=["persistence", "reshard"])
def test_it_gives_right_values_and_shardings_and_errors_for_what_is_missing(config, code):
    check(config, code)


def test_orbax_saves_and_restores_from_the_hosts(config):
    check(config, ORBAX, ENABLE_PATHWAYS_PERSISTENCE="1")


PROFILE = """
import json
import fsspec
from pathwaysutils import plugin_executable, profiling

@jax.jit
def step(x):
    with jax.named_scope("layer"):
        y = jnp.tanh(x @ x)
    return jax.lax.with_sharding_constraint(y / y.sum(), NamedSharding(mesh, P()))

x = jax.device_put(np.ones((256, 256), np.float32), NamedSharding(mesh, P("slice", "chip")))
step(x).block_until_ready()

def traced(place, **options):
    profiling.start_trace(place, **options)
    for _ in range(3):
        step(x).block_until_ready()
    profiling.stop_trace()
    files = fsspec.filesystem("gs")
    files.invalidate_cache()
    paths = files.glob(f"{place}/plugins/profile/*/*.xplane.pb")
    read = jax.profiler.ProfileData.from_serialized_xspace
    return {path.rsplit("/")[-1].removesuffix(".xplane.pb"): read(files.cat_file(path)) for path in paths}

found = traced("gs://pathways-local/two", max_num_hosts=2)
# The kernel's own trace is the fourth.
assert set(found) >= {"slice-0-host-0", "slice-1-host-1", "proxy"} and len(found) == 4, found
for slice_index, host in enumerate(("slice-0-host-0", "slice-1-host-1")):
    planes = {plane.name: plane for plane in found[host].planes}
    assert {f"/device:TPU:{4 * slice_index + chip}" for chip in range(4)} | {"/host:CPU"} <= set(planes)
    for name, plane in planes.items():
        if not name.startswith("/device:"):
            continue
        assert dict(plane.stats)["slice"] == f"slice {slice_index}"
        lines = {line.name: list(line.events) for line in plane.lines}
        assert [event.name for event in lines["XLA Modules"]] == ["jit_step"] * 3
        assert [event.name for event in lines["Steps"]] == ["0", "1", "2"]
        for module in lines["XLA Modules"]:
            inside = [op for op in lines["XLA Ops"] if module.start_ns <= op.start_ns < module.end_ns]
            assert {"all-reduce", "dot"} <= {dict(op.stats)["hlo_category"] for op in inside}
            # Each by its own line, however long a chain of operations they are.
            assert any("layer/dot_general" in dict(op.stats).get("tf_op", "") for op in inside)
            assert any("layer/tanh" in dict(op.stats).get("tf_op", "") for op in inside)
            assert any("<string>" in dict(op.stats).get("source", "") for op in inside)

# As pathwaysutils does by default: one host.
assert set(traced("gs://pathways-local/one")) & {"slice-0-host-0", "slice-1-host-1"} == {"slice-0-host-0"}

# Without what the host did.
options = jax.profiler.ProfileOptions()
options.host_tracer_level = 0
names = [plane.name for plane in traced("gs://pathways-local/none", profiler_options=options)["slice-0-host-0"].planes]
assert "/device:TPU:0" in names and "/host:CPU" not in names

raises(lambda: profiling.start_trace("gs://no-such-bucket/x"), "NOT_FOUND", "no-such-bucket")
raises(lambda: profiling.start_trace("/tmp/x"), "GCS path")
raises(lambda: profiling.stop_trace(), "No profile started")

# One at a time; one whose client has let go of it is over.
request = json.dumps({"profileRequest": {"traceLocation": "gs://pathways-local/raw"}})
first, second = (plugin_executable.PluginExecutable(request) for _ in range(2))
first.call()[1].result()
raises(lambda: second.call()[1].result(), "FAILED_PRECONDITION", "already")
del first
for _ in range(2):
    second.call()[1].result()
assert fsspec.filesystem("gs").glob("gs://pathways-local/raw/plugins/profile/*/slice-0-host-0.xplane.pb")

# Another process, or curl, asks this one for a profile.
profiling.start_server(port := portpicker.pick_unused_port())
wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
running = threading.Thread(target=lambda: [step(x).block_until_ready() for _ in range(20)])
running.start()
assert profiling.collect_profile(port, 200, "127.0.0.1", "gs://pathways-local/asked")
running.join()
assert fsspec.filesystem("gs").glob("gs://pathways-local/asked/plugins/profile/*/slice-0-host-0.xplane.pb")
"""

LOSS = """
import subprocess
import fsspec
from pathwaysutils import profiling

step = jax.jit(lambda x: x / x.sum())
x = jax.device_put(np.ones((256, 256), np.float32), NamedSharding(mesh, P("slice", "chip")))
profiling.start_trace("gs://pathways-local/lost", max_num_hosts=2)
step(x).block_until_ready()
chosen = "jobset.sigs.k8s.io/replicatedjob-name=worker,jobset.sigs.k8s.io/job-index=1"
kubectl = ["kubectl", "--kubeconfig", session.config.kubeconfig]
subprocess.run([*kubectl, "delete", "pod", "-l", chosen, "--wait=false"], check=True, capture_output=True)

def is_lost():
    try:
        step(x).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        return "DATA_LOSS" in str(error)

wait_until(is_lost)
profiling.stop_trace()
files = fsspec.filesystem("gs")
for slice_index, host in enumerate(("slice-0-host-0", "slice-1-host-1")):
    (path,) = files.glob(f"pathways-local/lost/plugins/profile/*/{host}.xplane.pb")
    planes = jax.profiler.ProfileData.from_serialized_xspace(files.cat_file(path)).planes
    (chip,) = [plane for plane in planes if plane.name == f"/device:TPU:{4 * slice_index}"]
    assert any(event.name == "jit__lambda" for line in chip.lines for event in line.events)
profiling.start_trace("gs://pathways-local/again")
profiling.stop_trace()
"""


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_profile_ends_cleanly_when_a_slice_is_lost(config):
    check(config, "from waits import wait_until\n" + LOSS)


def test_profiles_show_what_each_chip_did(config):
    check(config, "import portpicker, socket, threading\nfrom waits import wait_until\n" + PROFILE)
