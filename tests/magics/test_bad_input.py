"""Bad input to %pathways connect: one clear message with a way out, and nothing is changed."""

import json

import pytest
import yaml
from kubeconfigs import write

STATE_OF_JAX = "import os, jax\nprint(jax.config.jax_platforms, sorted(k for k in os.environ if k.startswith('IFRT')))"


@pytest.fixture(scope="module")
def kubeconfigs(cluster, machine):
    """Kubeconfigs that do not lead to a proxy, by what is wrong with them."""
    good = machine.cli("local", "kubeconfig").stdout.strip()
    content = yaml.safe_load(cluster.read_text())
    server, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    elsewhere = server | {"server": "https://127.0.0.1:1"}
    return {
        "good": good,
        "unreachable": write(machine.directory / "unreachable", elsewhere, user),
        "forged": write(machine.directory / "forged", server, {"token": "not-a-token"}),
    }


TPU = "--tpu tpuv6e:2x2=1"


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("--tpu tpuv6:2x2=1 --local", "Unknown TPU version 'tpuv6'", "Did you mean tpuv6e:2x2?"),
        ("--tpu tpuv6e:3x3=1 --local", "no topology '3x3'", "Topologies of tpuv6e"),
        ("--tpu tpuv6e:2x2=none --local", "whole number", "tpuv6e:2x2=2"),
        ("--kubeconfig {good}", "No TPU slices", "--tpu tpuv6e:2x2=2"),
        (f"{TPU} --local --service head:port", "not a Pathways service address", "HOST:PORT"),
        (f"{TPU} --kubeconfig {{good}} --service absent", "no Pathways service absent", "pathways-cluster"),
        (f"{TPU} --kubeconfig /nowhere", "no kubeconfig /nowhere", "--kubeconfig"),
        (
            TPU,
            "NoKubeconfigError\x1b[0m: There is no kubeconfig",
            "The embedded cluster is running on this machine: add --local to use it. Otherwise use --cluster/--project",
        ),
        (f"{TPU} --kubeconfig {{good}} --context other", "no context 'other'", "pathways-local"),
        (f"{TPU} --kubeconfig {{unreachable}}", "127.0.0.1:1", ""),
        (f"{TPU} --kubeconfig {{forged}}", "credentials", ""),
        (f"{TPU} --kubeconfig {{good}} --proxy-server-image example.com/proxy:1", "image", "--proxy-image"),
        (f"{TPU} --kubeconfig {{good}} --proxy-options=--server_port=1", "server_port", ""),
        ("--tpu tpuv6e:2x2=3 --kubeconfig {good}", "3 were requested", ""),
        ("--tpu tpuv5e:2x2=1 --kubeconfig {good}", "tpuv5e:2x2", "tpuv6e:2x2"),
        (f"{TPU} --profile absent", "no profile 'absent'", "pathways.toml"),
        (f"{TPU} --wait soon", "number of seconds", "--wait 60"),
        (f"{TPU} --local --context other", "embedded cluster was asked for, and so was context", "Leave out --local"),
        (f"{TPU} --cluster c", "needs its project and region", "--project"),
    ],
)
def test_bad_input_is_reported_in_three_lines_at_most_and_changes_nothing(
    line, message, hint, kubeconfigs, cluster, machine, shared_notebook
):
    shared_notebook.run("%load_ext pathways_jupyter")
    before = (cluster.read_bytes(), shared_notebook.run(STATE_OF_JAX).text)
    cell = shared_notebook.run(f"%pathways connect {line.format(**kubeconfigs)}")
    assert cell.status == "error"
    assert message in cell.shown
    assert hint in cell.shown
    assert 1 <= len(cell.shown.splitlines()) <= 3
    assert "Traceback" not in cell.shown
    assert (cluster.read_bytes(), shared_notebook.run(STATE_OF_JAX).text) == before
    assert json.loads(machine.cli("sessions", "--json").stdout) == []
