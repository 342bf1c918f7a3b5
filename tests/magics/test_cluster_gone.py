"""The embedded cluster dies under a connected notebook: what is reported, and how to reconnect."""

import contextlib
import json
import os
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from waits import frozen, has_ended, wait_until

from pathways_jupyter.server.server_state import ServerState
from pathways_jupyter.session.protocol import Method
from tests.conftest import Notebook

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def own(machine):
    """Another machine, whose cluster may be killed."""
    with machine.another() as made:
        yield made
        made.cli("local", "down", "--yes")
        left = [each["pid"] for each in json.loads(made.cli("sessions", "--json").stdout)]
        wait_until(lambda: all(map(has_ended, left)))


@pytest.mark.thorough
def test_a_cluster_that_was_killed_is_reported_and_reconnecting_starts_another_of_its_size(own):
    assert own.cli("local", "up", "--tpu", "tpuv6e:2x2=3", "--fast-heal").returncode == 0
    with contextlib.closing(Notebook(own)) as notebook:
        notebook.connect("--local --tpu tpuv6e:2x2=1")
        assert "2 free" in notebook.run("%pathways slices").text
        pid = json.loads(own.cli("local", "status", "--json").stdout)["pid"]
        os.kill(pid, signal.SIGKILL)
        assert "%pathways reconnect" in notebook.wait_for("All arrays on TPUs are lost")
        notebook.wait_for("Not live")
        status = notebook.run("%pathways status").text
        assert "lost" in status
        assert "The embedded cluster of this machine has ended." in status
        for line in ("slices", "services", "doctor", "logs rm", "elastic heal", "saved"):
            cell = notebook.run(f"%pathways {line}")
            assert "The embedded cluster of this machine has ended." in cell.text + cell.shown, line
            # It has a session, with which `%pathways connect --local` would be refused.
            assert "%pathways reconnect starts it again" in cell.text + cell.shown, line
            assert "VPN" not in cell.text + cell.shown
        seen = len(notebook.seen)
        again = notebook.run("%pathways reconnect")
        assert again.status == "ok", again.shown
        # The map that was drawn before follows the session to the new cluster.
        while "Not live" in (drawn := notebook.wait_for("2 free", since=seen)):
            seen = notebook.seen.index(drawn, seen) + 1
        assert notebook.run("import jax; print(len(jax.devices()))").text.strip() == "4"
        restarted = json.loads(own.cli("local", "status", "--json").stdout)
        assert (restarted["instances"], restarted["fast_heal"]) == ({"tpuv6e:2x2": 3}, True)
        over = notebook.run("%pathways disconnect")
        assert "is over" in over.text
        assert "Not everything" not in over.text
    assert json.loads(own.cli("sessions", "--json").stdout) == []


@pytest.mark.thorough
def test_a_cluster_that_does_not_answer_is_reported_by_reconnect_and_not_waited_for(own):
    assert own.cli("local", "up", "--tpu", "tpuv6e:2x2=1").returncode == 0
    kubeconfig = own.cli("local", "kubeconfig").stdout.strip()
    with contextlib.closing(Notebook(own)) as notebook:
        notebook.connect("--local --tpu tpuv6e:2x2=1")
        pid = json.loads(own.cli("local", "status", "--json").stdout)["pid"]
        with frozen(pid):
            # JAX's errors come with advice, whether the supervisor knows already or not.
            failed = notebook.run("import jax; jax.numpy.ones(3)")
            assert failed.status == "error"
            leads_back = "%pathways reconnect (connects again|gets a new proxy)"
            assert re.search(leads_back, failed.text), failed.shown
            assert re.search(leads_back, notebook.run("%%pathways profile\njax.numpy.ones(3)").shown)
            # As its supervisor finds it at first, and with the session lost as that of a cluster that may have ended.
            for _ in range(2):
                refused = notebook.run("%pathways reconnect --yes")
                assert "does not answer" in refused.shown
                assert f"kill -CONT {pid}" in refused.shown
                assert "VPN" not in refused.shown
            assert f"kill -CONT {pid}" in own.cli("local", "status").stderr
        assert notebook.run("%pathways reconnect").status == "ok"
        assert notebook.run("%pathways disconnect").status == "ok"
        # One that was named by its kubeconfig is not started by reconnecting. The session before may have been lost.
        notebook.connect(f"--kubeconfig {kubeconfig} --tpu tpuv6e:2x2=1")
        seen = len(notebook.seen)
        assert own.cli("local", "down", "--yes").returncode == 0
        notebook.wait_for("All arrays on TPUs are lost", since=seen)
        refused = notebook.run("%pathways reconnect")
        assert "The embedded cluster of this machine has ended." in refused.shown
        assert "pathways-jupyter local up" in refused.shown


@pytest.mark.thorough
def test_the_advice_is_for_the_cluster_that_has_ended_by_its_name(own):
    up = ("local", "up", "--name", "b", "--tpu", "tpuv6e:2x2=1", "--json")
    started = json.loads(own.cli(*up).stdout)
    try:
        with contextlib.closing(Notebook(own)) as notebook:
            notebook.connect(f"--kubeconfig {started['kubeconfig']} --tpu tpuv6e:2x2=1")
            os.kill(started["pid"], signal.SIGKILL)
            notebook.wait_for("All arrays on TPUs are lost")
            for line in ("slices", "saved", "doctor", "job list", "reconnect"):
                cell = notebook.run(f"%pathways {line}")
                assert "pathways-jupyter local up --name b; then %pathways reconnect" in cell.text + cell.shown, line
            elsewhere = own.cli("slices", "--kubeconfig", started["kubeconfig"])
            assert "Start it again: pathways-jupyter local up --name b. " in elsewhere.stderr
            assert own.cli(*up).returncode == 0
            again = notebook.run("%pathways reconnect")
            assert again.status == "ok", again.shown
            assert "is over" in notebook.run("%pathways disconnect").text
    finally:
        assert own.cli("local", "down", "--name", "b", "--yes").returncode == 0


@pytest.mark.soak
async def test_the_sidebars_reconnect_starts_another_as_well(own, monkeypatch):
    for name in ("JUPYTER_RUNTIME_DIR", "HOME"):
        monkeypatch.setenv(name, own.environ[name])
    with contextlib.closing(Notebook(own)) as notebook:
        notebook.connect("--local --tpu tpuv6e:2x2=1")
        os.kill(json.loads(own.cli("local", "status", "--json").stdout)["pid"], signal.SIGKILL)
        notebook.wait_for("All arrays on TPUs are lost")
        (session,) = json.loads(own.cli("sessions", "--json").stdout)
        await ServerState().act(session["id"], Method.RECONNECT)
        found = notebook.run("import jax; print(len(jax.devices()))").text
        assert "JAX uses its new proxy" in found
        assert found.splitlines()[-1] == "4"
        assert "is over" in notebook.run("%pathways disconnect").text


@pytest.mark.thorough
def test_a_connect_waits_for_an_api_server_that_is_being_restarted(own):
    assert own.cli("local", "up", "--tpu", "tpuv6e:2x2=1").returncode == 0
    up = json.loads(own.cli("local", "status", "--json").stdout)
    with contextlib.closing(Notebook(own)) as notebook, ThreadPoolExecutor() as pool:
        restarted = pool.submit(own.cli, "local", "restart-api", "--away", "4")
        wait_until(lambda: not serves(up["url"]))
        notebook.connect(f"--kubeconfig {up['kubeconfig']} --tpu tpuv6e:2x2=1")
        assert restarted.result().returncode == 0
        assert notebook.run("%pathways disconnect").status == "ok"


def serves(url):
    host, port = url.removeprefix("https://").split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.thorough
def test_a_resume_takes_no_slices_for_arrays_that_went_with_their_cluster(own):
    assert own.cli("local", "up", "--tpu", "tpuv6e:2x2=1").returncode == 0
    with contextlib.closing(Notebook(own)) as notebook:
        notebook.connect("--local --tpu tpuv6e:2x2=1 --gcs-bucket gs://pathways-local")
        assert notebook.run("import jax; x = jax.numpy.ones(3)\n%pathways suspend").status == "ok"
        assert own.cli("local", "down", "--yes").returncode == 0
        refused = notebook.run("%pathways resume --yes").shown
        assert "there is none of that name" in refused
        assert "%pathways disconnect ends the session" in refused
        (record,) = json.loads(own.cli("sessions", "--json").stdout)
        assert (record["state"], record["slices"]) == ("suspended", [])
