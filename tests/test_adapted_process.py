"""A process has the same beside JAX's devices after ``connect()`` and under ``run``: one script for both."""

import sys

import pytest

pytestmark = pytest.mark.timeout(240)

SCRIPT = """
import contextlib, os, sys, threading
{first}
import jax, jax.numpy as jnp, numpy as np

number, = sys.argv[1:]
if {initializes}:
    import pathwaysutils
    pathwaysutils.initialize()
place = f"gs://pathways-local/traces-{{number}}"
jax.profiler.start_trace(place)
print(float(jnp.arange(8.0).sum()))
jax.profiler.stop_trace()
import gcsfs
bucket = gcsfs.GCSFileSystem(token="anon", use_listings_cache=False)
traces = [each for each in bucket.find(place.removeprefix("gs://")) if each.endswith(".xplane.pb")]
planes = {{
    plane.name.partition(" ")[0]
    for each in traces
    for plane in jax.profiler.ProfileData.from_serialized_xspace(bucket.cat_file(each)).planes
}}
print("/host:CPU" in planes)
jax.device_put(np.ones((3, 5), np.float32)).block_until_ready()
print(any(each.name == "pathways-layouts" for each in threading.enumerate()))
if sys.platform == "linux":
    # That of the thread of the client that wakes up all the time.
    slacks = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/{{task}}/timerslack_ns") as file:
            slacks.add(int(file.read()))
    print(5_000_000 in slacks)
"""
CONNECT = 'import pathways_jupyter; session = pathways_jupyter.connect(local=True, tpu="tpuv6e:2x2=1")'


@pytest.mark.thorough
@pytest.mark.parametrize("initializes", [False, True], ids=["plain", "pathwaysutils"])
def test_a_program_under_run_has_what_a_connected_process_has(machine, cluster, initializes):
    printed = {}
    for name, first in (("connect", CONNECT), ("run", "")):
        command = ["-c", SCRIPT.format(first=first, initializes=initializes), f"{name}-{initializes}"]
        if name == "run":
            done = machine.cli("run", "-q", "--local", "--tpu", "tpuv6e:2x2=1", "--", sys.executable, *command)
        else:
            done = machine.python(*command)
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stderr
        printed[name] = done.stdout.splitlines()
    assert printed["run"] == printed["connect"] == ["28.0", *["True"] * (len(printed["run"]) - 1)]
