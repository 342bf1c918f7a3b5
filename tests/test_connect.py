"""pathways_jupyter.connect(): the front door for scripts."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys

import pathways_jobs
import pytest
from waits import wait_until

import pathways_jupyter
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import size
from tests.conftest import Notebook

pytestmark = pytest.mark.timeout(240)

SCRIPT = """
import sys, jax, pathways_jupyter
with pathways_jupyter.connect(
    kubeconfig=sys.argv[1],
    gcs_bucket="gs://a-bucket",
    pathways_service="pathways-cluster-pathways-head-0-0.pathways-cluster:29001",
    expected_tpu_instances={"tpuv6e:2x2": 2},
    wait=True,
) as session:
    print(session.state, len(jax.devices()), sorted(session.slices()), float(jax.numpy.arange(8.0).sum()))
print(jax.devices()[0].platform)
session = pathways_jupyter.connect(local=True, expected_tpu_instances={"tpuv6e:2x2": 1})
print(len(jax.devices()))
session.disconnect()
print(session.state, len(session.slices()))
"""


def test_a_script_connects_with_the_keywords_of_pathwaysutils(machine, cluster):
    done = machine.python("-c", SCRIPT, str(cluster))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["connected 8 [0, 1] 28.0", "cpu", "4", "closed 0"]
    assert json.loads(machine.cli("sessions", "--json").stdout) == []


SMALL = """
import jax, pathways_jupyter
with pathways_jupyter.connect(local=True, expected_tpu_instances={"tpuv6e:2x2": 1}):
    print(len(jax.devices()), float(jax.numpy.arange(8.0).sum()))
"""


@pytest.mark.thorough
def test_a_cluster_smaller_than_the_default_is_used_as_it_is(machine):
    with machine.own_cluster("--tpu", "tpuv6e:2x2=1") as own:
        done = own.python("-c", SMALL)
        assert (done.stdout, done.returncode) == ("4 28.0\n", 0), done.stderr
        assert "does not heal fast" in own.cli("local", "up", "--tpu", "tpuv6e:2x2=1", "--fast-heal").stderr


@pytest.mark.thorough
def test_connect_adds_the_slices_that_a_running_cluster_lacks_beside_those_in_use(machine):
    with machine.own_cluster("--tpu", "tpuv6e:2x2=1") as own:
        with contextlib.closing(Notebook(own)) as one, contextlib.closing(Notebook(own)) as two:
            one.connect("--local")
            assert one.run("import jax; x = jax.numpy.arange(8.0)").status == "ok"
            two.connect("--local --tpu tpuv6e:2x2=3 --at-least 2")
            assert two.run("import jax; print(len(jax.devices()))").text.strip() == "8"
            # Those stages are shown that take place.
            assert any("add slices to the embedded cluster" in each for each in two.seen)
            assert not any("start the embedded cluster" in each for each in (*one.seen, *two.seen))
            assert one.run("print(float(x.sum()))").text.strip() == "28.0"
            refused = own.cli("local", "down")
            assert refused.returncode == 1
            assert "This ends 2 sessions with their arrays: " in refused.stderr
            assert refused.stderr.count("(connected, 2 slices of tpuv6e:2x2)") == 1
            assert "add --yes" in refused.stderr
            assert one.run("print(float(x.sum()))").text.strip() == "28.0"
            assert one.run("%pathways disconnect").status == "ok"
            # The other session still is.
            refused = own.cli("local", "down")
            assert "This ends 1 session with its arrays: process" in refused.stderr
            code, shown = answer(own, b"n\n", "local", "down")
            assert (code, "Stop the embedded cluster? [y/N]" in shown, "Aborted!" in shown) == (1, True, True)
            assert two.run("print(len(jax.devices()))").text.strip() == "8"
            assert two.run("y = jax.numpy.ones(4)\n%pathways save friday y").status == "ok"
        # Not about sessions where none is left, but about what else runs: a job, and a service of one's own.
        (own.directory / "job.yaml").write_text(json.dumps(pathways_jobs.training("night", "sleep", "600")))
        assert own.cli("job", "apply", "-f", "job.yaml", "--local").returncode == 0
        assert own.cli("local", "up", "--tpu", "tpuv6e:2x2=1", "--spare", "tpuv5e:2x2=1").returncode == 0
        deploy = ("service", "deploy", "other", "--local", "--tpu", "tpuv5e:2x2", "--slices", "1")
        assert (deployed := own.cli(*deploy)).returncode == 0, deployed.stderr
        wait_until(lambda: "PathwaysJob night" in own.cli("local", "down").stderr)
        refused = own.cli("local", "down")
        assert refused.returncode == 1
        (saved,) = json.loads(own.cli("saved", "--local", "--json").stdout)
        deleted = f"deletes 1 save ({size(saved['nbytes'])}): friday."
        assert f"This ends JobSet other; PathwaysJob night, and {deleted} Stop the embedded cluster?" in refused.stderr
        assert own.cli("local", "status").returncode == 0
        assert own.cli("job", "delete", "night", "--local", "--yes").returncode == 0
        assert own.cli("service", "delete", "other", "--local", "--yes").returncode == 0
        # Nor, of a cluster that was killed, about what runs there.
        os.kill(json.loads(own.cli("local", "status", "--json").stdout)["pid"], signal.SIGKILL)
        wait_until(lambda: own.cli("local", "status").returncode != 0)
        refused = own.cli("local", "down")
        assert f"This {deleted} Remove what it left?" in refused.stderr
        assert own.cli("local", "down", "--yes").stdout == "It was not running; its files are removed.\n"


def answer(machine, line, *arguments):
    """Run the command line, and answer its question on a terminal; return the exit code and what it says."""
    ours, theirs = pty.openpty()
    os.write(ours, line)
    done = subprocess.run(
        [sys.executable, "-m", "pathways_jupyter", *arguments],
        env=machine.environ,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    return done.returncode, done.stdout


def slices_of(machine):
    return json.loads(machine.cli("local", "status", "--json").stdout)["instances"]


@pytest.mark.thorough
def test_what_can_never_be_is_refused_before_slices_are_added(machine, cluster):
    before = slices_of(machine)
    line = ("run", "--local", "--quiet", "--tpu")
    for arguments, said in (
        (("tpuv6e:2x4=1", "--service", "pathways-cluster"), "has slices of tpuv6e:2x2, not tpuv6e:2x4"),
        (("tpuv6e:2x2=9", "--service", "nowhere"), "There is no Pathways service nowhere"),
        (("tpuv6e:2x2=9,tpuv6e:2x4=1",), "has slices of tpuv6e:2x2, not tpuv6e:2x4"),
        (("tpuv6e:2x2=999",), "hosts, and this machine runs about"),
        (("tpuv6e:2x2=999",), "Ask for fewer slices, or add --yes."),
    ):
        refused = machine.cli(*line, *arguments, "--", "true")
        assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    script = "import pathways_jupyter; pathways_jupyter.connect(local=True, tpu='tpuv6e:2x2=999')"
    done = machine.python("-c", script)
    assert "Ask for fewer slices, or add yes=True." in done.stderr
    assert slices_of(machine) == before


@pytest.mark.thorough
def test_slices_are_added_beside_those_that_are_held_and_go_again_if_connecting_fails(machine):
    with (
        machine.own_cluster("--tpu", "tpuv6e:2x2=1") as own,
        contextlib.closing(Notebook(own)) as one,
        contextlib.closing(Notebook(own)) as two,
    ):
        one.connect("--local --tpu tpuv6e:2x2=1")
        two.connect("--local --tpu tpuv6e:2x2=1")
        assert two.run("%pathways disconnect").status == "ok"
        assert slices_of(own) == {"tpuv6e:2x2": 2}
        # What is refused later has been added, and goes again.
        refused = two.run("%pathways connect --local --tpu tpuv6e:2x2=2 --queue nowhere")
        assert "There is no queue nowhere" in refused.shown
        # No answer is a no.
        cell = two.begin("%pathways connect --local --tpu tpuv6e:2x2=999")
        assert "Start them?" in two.client.get_stdin_msg(timeout=60)["content"]["prompt"]
        two.client.input("")
        assert "Ask for fewer slices" in two.finish(cell).shown
        # An Interrupt of the question is one, and said once.
        cell = two.begin("%pathways connect --local --tpu tpuv6e:2x2=999")
        two.client.get_stdin_msg(timeout=60)
        two.manager.interrupt_kernel()
        said = "Connecting was interrupted. Everything that it had created was removed."
        assert said in two.finish(cell).shown
        # The first connection said the same.
        seen = len(two.seen)
        cell = two.begin("%pathways connect --local --tpu tpuv6e:2x2=6")
        two.wait_for("add slices to the embedded cluster", since=seen)
        two.manager.interrupt_kernel()
        interrupted = two.finish(cell)
        assert "Everything that it had created was removed." in interrupted.shown
        assert slices_of(own) == {"tpuv6e:2x2": 2}
        # Those that are left can be used, and be added to again.
        again = two.run("%pathways connect --local --tpu tpuv6e:2x2=2\nimport jax; print(len(jax.devices()))")
        assert again.text.strip().endswith("8"), again.shown
        assert slices_of(own) == {"tpuv6e:2x2": 3}


LOSE_AND_RECONNECT = """
import subprocess, sys, jax, pathways_jupyter

def main():
    session = pathways_jupyter.connect(kubeconfig=sys.argv[1], expected_tpu_instances={"tpuv6e:2x2": 1})
    assert pathways_jupyter.current_session() is session
    params = {"w": jax.numpy.ones((2, 3))}
    since, pod = session.event_count, session.status().pod
    subprocess.run(["kubectl", "--kubeconfig", sys.argv[1], "delete", "pod", pod, "--wait=false"], check=True,
                   stdout=subprocess.DEVNULL)
    next(event for event in session.follow(since) if event.kind == "proxy-lost")
    print(*session.reconnect().unusable)
    print(session.state, float(jax.numpy.ones(2).sum()))
    params = {"w": jax.numpy.ones((2, 3))}
    print(*session.disconnect().unusable)
    assert pathways_jupyter.current_session() is None

kept = None
main()
"""


def test_a_script_reconnects_and_learns_which_of_its_arrays_are_gone(machine, cluster):
    done = machine.python("-c", LOSE_AND_RECONNECT, str(cluster))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "params['w']: float32[2,3]",
        "connected 2.0",
        "params['w']: float32[2,3]",
    ]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"expected_tpu_instances": {"tpuv6e:3x3": 1}}, "topology"),
        (
            {"local": True, "context": "other", "expected_tpu_instances": {"tpuv6e:2x2": 1}},
            "Leave out local=True or context=",
        ),
        ({"kubeconfig": "/nowhere"}, "No TPU slices"),
        ({"kubeconfig": "/nowhere"}, 'tpu="tpuv6e:2x2=2"'),
        ({"cluster": "mine", "tpu": "v6e-4"}, "Add project= and region=, or use context="),
        ({"tpu": "v6e-4", "expected_tpu_instances": "v6e-16"}, "two names of one setting"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(arguments, word, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        pathways_jupyter.connect(**arguments)
    # What a script's traceback shows of it.
    assert word in f"{caught.value} {caught.value.__notes__}"
    assert "--" not in f"{caught.value} {caught.value.__notes__}"


def test_the_embedded_cluster_that_runs_is_taken_as_it_is(tmp_path_factory, monkeypatch):
    from pathways_jupyter.actions.cluster import Located, resolve
    from pathways_jupyter.local import cluster

    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(home))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(home))
    running = cluster.up({"tpuv5e:2x2": 3}, idle_seconds=600, wait=False)
    try:
        with Located(resolve({"local": True})) as found:
            pass
        assert (found.instances, found.kubeconfig) == ({"tpuv5e:2x2": 3}, str(running.kubeconfig))
    finally:
        cluster.down()
