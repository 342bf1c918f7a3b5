"""Variables over which JAX's native code ends the process: each command says so before it creates anything."""

import json
import sys

import pytest

TPU_FLAG = "--xla_tpu_spmd_rng_bit_generator_unsafe=true"
CONNECT = "%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=1"
CHECK = """
import os, sys
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.session import native_environment
try:
    native_environment.check()
except ConfigError as error:
    print(error)
"""

pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("cluster")]


def sessions(machine) -> list[dict]:
    return json.loads(machine.cli("sessions", "--json").stdout)


def test_connect_survives_flags_for_tpus_and_says_where_they_belong(notebook, machine):
    connected = notebook.run(f"import os\nos.environ['XLA_FLAGS'] = '{TPU_FLAG}'\n{CONNECT}")
    assert connected.error == "ConfigError", connected.shown
    assert f"XLA_FLAGS has flags that it does not know here: {TPU_FLAG}." in connected.shown
    assert "give them with --proxy-options" in connected.shown
    assert not any("Switching JAX" in each for each in notebook.seen)
    assert sessions(machine) == []
    # Nothing was read here yet, so the kernel needs no restart.
    again = f"del os.environ['XLA_FLAGS']\n%pathways connect --local --tpu tpuv6e:2x2=1 --proxy-options={TPU_FLAG}"
    assert notebook.run(again).status == "ok"
    assert notebook.run("import jax; print(float(jax.numpy.arange(8.0).sum()))").text.strip() == "28.0"


@pytest.mark.thorough
def test_flags_that_are_set_when_jax_has_read_its_own_stop_no_connect(notebook):
    notebook.run("import jax; jax.devices()")
    connected = notebook.run(f"import os\nos.environ['XLA_FLAGS'] = '{TPU_FLAG}'\n{CONNECT}")
    assert connected.status == "ok", connected.shown


def test_run_refuses_flags_for_tpus_before_it_takes_slices(machine):
    done = machine.cli(
        "run", "--local", "--tpu", "tpuv6e:2x2=1", "--", sys.executable, "-c", "pass", XLA_FLAGS=TPU_FLAG
    )
    assert done.returncode == 1
    assert TPU_FLAG in done.stderr
    assert "give them with --proxy-options" in done.stderr
    assert "proxy" not in done.stderr.partition(TPU_FLAG)[0]


def test_doctor_and_explain_name_the_variable(machine, cluster):
    done = machine.cli("doctor", "--kubeconfig", str(cluster), "--json", XLA_FLAGS=TPU_FLAG)
    assert done.returncode == 1
    (found,) = [each for each in json.loads(done.stdout) if each["name"] == "environment"]
    assert (found["level"], TPU_FLAG in found["message"]) == ("fail", True)
    assert "customFlags" in machine.cli("explain", "XLA_FLAGS").stdout


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("XLA_FLAGS", "--xla_tpu_a=1 --xla_tpu_b=2 --xla_cpu_enable_fast_math=true", "here: --xla_tpu_a=1 --xla_tpu_b"),
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=two", "Couldn't interpret value two"),
        ("XLA_FLAGS", "/no/such/file", 'Could not open file "/no/such/file"'),
        ("GRPC_POLL_STRATEGY", "nosuch", "No event engine could be initialized from nosuch"),
        ("IFRT_PROXY_GRPC_MAX_ONGOING_HOST_BUFFER_STORES", "many", "BUFFER_STORES: 'many'"),
        ("IFRT_PROXY_CRASH_ON_DISCONNECT", "maybe", "IFRT_PROXY_CRASH_ON_DISCONNECT: 'maybe'"),
        ("IFRT_PROXY_CRASH_ON_DISCONNECT", "true", "would end this kernel together with its proxy"),
        ("IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY", "/tmp", "which a proxy in a pod does not see"),
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=2", ""),
        ("XLA_FLAGS", "", ""),
        ("GRPC_POLL_STRATEGY", "poll", ""),
        ("IFRT_PROXY_CRASH_ON_DISCONNECT", "false", ""),
        ("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "maybe", ""),
    ],
)
def test_what_ends_a_process_is_found_out_by_another_one(machine, name, value, said):
    done = machine.python("-c", CHECK, **{name: value})
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert bool(said) == bool(done.stdout.strip())


def test_variables_of_jax_that_it_cannot_read_are_said_before_anything_is_created(notebook, machine):
    connected = notebook.run(f"import os\nos.environ['JAX_ENABLE_X64'] = 'maybe'\n{CONNECT}")
    assert connected.error == "ConfigError", connected.shown
    assert (
        "JAX cannot be imported here: invalid truth value 'maybe' for environment 'JAX_ENABLE_X64'." in connected.shown
    )
    assert "restart this kernel" in connected.shown
    assert not any("Switching JAX" in each for each in notebook.seen)
    # The next import finds a part of JAX, and would fail with a riddle.
    again = notebook.run("%pathways connect --local --tpu tpuv6e:2x2=1")
    assert "invalid truth value 'maybe'" in again.shown
    assert sessions(machine) == []


@pytest.mark.thorough
def test_the_older_name_of_a_platform_keeps_nothing_on_this_machine(notebook, machine):
    notebook.run("import os; os.environ['JAX_PLATFORM_NAME'] = 'cpu'")
    assert notebook.run(CONNECT).status == "ok"
    devices = notebook.run("import jax; print(jax.devices()[0].platform, jax.numpy.ones(3).devices())")
    assert devices.text.startswith("tpu "), devices.text
    assert "TPU" in devices.text
    notebook.run("%pathways disconnect")
    restored = notebook.run("print(jax.devices()[0].platform, jax.config.read('jax_platform_name'))")
    assert restored.text.strip() == "cpu cpu"
    program = "import jax; print(jax.devices()[0].platform)"
    line = ("run", "-q", "--local", "--tpu", "tpuv6e:2x2=1", "--", sys.executable, "-c", program)
    assert machine.cli(*line, JAX_PLATFORM_NAME="cpu").stdout.strip() == "tpu"
