"""The errors of cells whose slice or session is lost, in a real kernel on the embedded cluster."""

import json
import os
import re
import signal
import subprocess

import pytest
from waits import wait_until

from pathways_jupyter.session import client
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord

CONNECT = "%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2"
PIDS = "%%colocated --quiet\nimport os\nos.getpid()"
ENDLESS = "%%colocated{}\nimport time\nprint('begun')\nwhile True: time.sleep(0.1)"
RECORD = """
import json
from pathways_jupyter.session.kernel import session as sessions
print(json.dumps(sessions.current().record.to_json()))
"""
TRAIN = """
import jax, jax.numpy as jnp, numpy as np, pathways_jupyter
from pathways_jupyter import colocated, elastic
session, snapshots = pathways_jupyter.current_session(), elastic.Snapshots()
def ones(host, count):
    while True:
        yield np.ones((8, 4), np.float32)
def step(state, batch):
    return state + batch.mean(), {"mean": batch.mean()}
def train():
    up = [device for each in session.record.slices if each.up for device in session.slices()[each.index]]
    on = jax.sharding.Mesh(up, "x")
    batches = colocated.iterator(ones, sharding=jax.NamedSharding(on, jax.P("x")))
    state = jax.device_put(jnp.zeros(4), jax.NamedSharding(on, jax.P()))
    return elastic.train_loop(step, state, batches, steps=60, snapshots=snapshots)
%pathways elastic inject slice-down 1 --at-step 20
train()
"""
SOON = 60.0
"""Seconds within which a cell has to end; far less than JAX would wait."""
SLICE = "pathways-cluster-worker-1"
WORKER = f"{SLICE}-0"
SIDECAR = "colocated-python-sidecar"


@pytest.fixture
def connected(cluster, machine, shared_notebook):
    # The slice that the test before has lost may still be healing.
    assert machine.cli("service", "wait", "pathways-cluster", "--local").returncode == 0
    shared_notebook.displays.clear()
    shared_notebook.seen.clear()
    cell = shared_notebook.run(CONNECT)
    assert cell.status == "ok", cell.shown
    yield shared_notebook
    shared_notebook.run("%pathways disconnect")
    # Reports what the session has left, for this test and not for the next one.
    shared_notebook.run("%reset -f")


class World:
    """Actions on a session from outside its notebook."""

    def __init__(self, connected, machine, kubeconfig) -> None:
        self.machine = machine
        self.connected = connected
        self.sidecars = pids(connected)
        self.record = SessionRecord.from_json(json.loads(connected.run(RECORD).text))
        self._kubeconfig = kubeconfig

    def kubectl(self, *arguments: str) -> str:
        command = ["kubectl", "--kubeconfig", str(self._kubeconfig), *arguments]
        # A process that kills its own container never says how it ended.
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60).stdout

    def worker(self) -> str:
        """The pod of slice 1's only host."""
        return next(name for name in self.kubectl("get", "pods", "-o", "name").split() if WORKER in name)

    def kill_in(self, pod: str, container: str) -> None:
        """Kills a container's first process."""
        self.kubectl("exec", pod, "-c", container, "--", "/bin/sh", "-c", "kill -s KILL 1")

    def ask(self, method: Method) -> None:
        """Asks the supervisor as the sidebar does."""
        client.request(self.record, method, patience=60)


@pytest.fixture
def world(connected, machine, cluster):
    return World(connected, machine, cluster)


def pids(connected) -> list[int]:
    assert connected.run(PIDS).status == "ok"
    return [int(pid) for pid in connected.run("print(_[0], _[1])").text.split()]


def begin(connected, options: str = "") -> str:
    first = len(connected.seen)
    request = connected.begin(ENDLESS.format(options))
    connected.wait_for("begun", since=first)
    return request


def assert_one_message(cell, message: str) -> None:
    """The cell ended with one error of at most three lines, and showed nothing else than what its hosts printed.

    A slice that is there again before the cell has ended may be announced in it.
    """
    assert cell.error == "LostError", cell.shown
    assert re.search(message, cell.shown)
    assert len(cell.shown.strip().splitlines()) <= 3
    printed = re.sub(
        rf"✓ \S+ \S+  Slice 1 is placed on {SLICE} again\.\n  New arrays can .* remain lost\.", "", cell.text
    )
    assert set(printed.split("\n")) <= {"[host 0] begun", "[host 1] begun", ""}
    for internal in ("UNAVAILABLE", "DATA_LOSS", "CANCELLED", "Grpc", "rpc"):
        assert internal not in cell.shown


LOSSES = {
    "a sidecar's process": (
        lambda world: os.kill(world.sidecars[1], signal.SIGKILL),
        r"A sidecar was lost while the call ran: the sidecar of host 1 is gone",
    ),
    "a sidecar's container": (
        lambda world: world.kill_in(world.worker(), SIDECAR),
        r"A sidecar was lost while the call ran: the sidecar of host 1 is gone",
    ),
    "a worker's pod": (
        lambda world: world.kubectl("delete", world.worker(), "--force", "--grace-period=0", "--wait=false"),
        r"The call ended because slice 1 went down\.",
    ),
    "a worker's container": (
        lambda world: world.kill_in(world.worker(), "pathways-worker"),
        r"The call ended because slice 1 went down\.",
    ),
    "the proxy's pod": (
        lambda world: world.kubectl("delete", "pod", world.record.pod, "--wait=false"),
        r"The call ended because the session was lost: Pod \S+ is being deleted",
    ),
    "the proxy's Job": (
        lambda world: world.kubectl("delete", "job", world.record.job, "--wait=false"),
        r"The call ended because the session was lost: ",
    ),
    "the supervisor": (
        lambda world: os.kill(world.record.pid, signal.SIGKILL),
        r"The call ended because the session was lost: The session's supervisor is gone\.",
    ),
    "the session, from a terminal": (
        lambda world: world.machine.cli("sessions", "disconnect"),
        r"The call ended because the session was ended from outside\.\n.*%pathways connect",
    ),
    "the session, from the sidebar": (
        lambda world: world.ask(Method.DISCONNECT),
        r"The call ended because the session was ended from outside\.\n.*%pathways connect",
    ),
    "the proxy, replaced from the sidebar": (
        lambda world: world.ask(Method.RECONNECT),
        r"The call ended because the session was reconnected from outside\.",
    ),
}


OFTEN = {"a worker's container", "the session, from the sidebar"}
"""The losses of the default run, which has some others in tests of their own; `make soak` has all."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "what", [each if each in OFTEN else pytest.param(each, marks=pytest.mark.soak) for each in LOSSES]
)
def test_a_loss_ends_the_cell_with_one_message(what, world, connected) -> None:
    lose, message = LOSSES[what]
    request = begin(connected)
    first = len(connected.seen)
    lose(world)
    assert_one_message(connected.finish(request, timeout=SOON), message)
    connected.run("1")
    # A card may be drawn again; a notice of its own would report the same twice.
    assert not [text for text in connected.seen[first:] if re.match(r"✗ \d\d:\d\d:\d\d", text)]


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["the proxy's pod", "the supervisor"])
def test_after_a_loss_a_cell_says_that_the_session_is_lost_and_reconnecting_fixes_it(what, world, connected) -> None:
    request = begin(connected)
    lose, message = LOSSES[what]
    lose(world)
    assert_one_message(connected.finish(request, timeout=SOON), message)
    cell = connected.run("%%colocated\n1")
    assert cell.error == "CheckError"
    assert re.search(f"The session is lost: {message.partition('was lost: ')[2]}", cell.shown)
    assert "%pathways reconnect" in cell.shown
    assert connected.run("%pathways reconnect").status == "ok"
    shown = "[hosts 0, 1] The session was reconnected: names of earlier cells are gone."
    assert connected.run("%%colocated\n1").text.splitlines() == [shown, "", "[hosts 0, 1] 1"]
    assert connected.run("%%colocated\n1").text.splitlines() == ["[hosts 0, 1] 1"]


@pytest.mark.thorough
def test_an_array_that_was_lost_is_named(connected) -> None:
    connected.run("import jax\nx = jax.numpy.arange(3)\ny = {'w': jax.device_put(x, jax.devices()[0])}")
    # Nothing is lost without a question.
    request = connected.begin("%pathways reconnect")
    question = connected.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    assert re.search(r"works\. A new proxy costs its \d arrays \(\d+ bytes\) on TPUs\. Reconnect\?", question)
    connected.client.input("n")
    assert "Not reconnected." in connected.finish(request).text
    assert connected.run("print(int(x.sum()))").text.strip() == "3"
    assert connected.run("%pathways reconnect --yes").status == "ok"
    for name, inside in (("x", "x"), ("y", "y['w']")):
        cell = connected.run(f"%%colocated --in {name}\n1")
        assert cell.error == "CheckError"
        assert re.search(rf"{re.escape(inside)} (has no data any more|was lost)", cell.shown)


@pytest.mark.thorough
def test_an_array_that_was_lost_with_its_slice_is_named_also_when_that_is_back(connected) -> None:
    connected.run("import jax\nx = jax.device_put(jax.numpy.arange(3), jax.devices()[4])\nx.block_until_ready()")
    first = len(connected.seen)
    assert connected.run("%pathways elastic inject slice-down 1").status == "ok"
    connected.wait_for("Slice 1 is down", since=first)
    wait_until(lambda: "connected, since" in connected.run("%pathways status").text, SOON)
    cell = connected.run("%%colocated --in x\n1")
    assert cell.error == "LostError", cell.shown
    assert "x was on a slice that went down, and is lost." in cell.shown


@pytest.mark.thorough
def test_where_no_cell_has_run_neither_a_new_session_nor_a_new_proxy_takes_names(connected) -> None:
    connected.run("%%colocated\nkept = 1")
    connected.run("%pathways disconnect")
    assert connected.run(CONNECT).status == "ok"
    assert connected.run("%%colocated --hosts 0\nkept = 1\nkept").text.splitlines() == ["[host 0] 1"]
    assert connected.run("%pathways reconnect --yes").status == "ok"
    cell = connected.run("%%colocated\nkept")
    assert cell.error == "HostError"
    assert "[host 0] The session was reconnected: names of earlier cells are gone." in cell.text
    assert "host 1" not in cell.text


@pytest.mark.thorough
def test_no_cell_on_other_slices_is_ended_by_a_lost_slice_which_is_reported_at_once_nor_by_cleaning_up(
    world, connected
) -> None:
    first = len(connected.seen)
    request = begin(connected, " --slices 0")
    assert world.machine.cli("clean", "--local").returncode == 0
    world.kill_in(world.worker(), "pathways-worker")
    connected.wait_for("Slice 1 is down", since=first, timeout=SOON)
    connected.manager.interrupt_kernel()
    assert connected.finish(request, timeout=SOON).error == "Interrupted"
    assert "ended" not in "".join(connected.seen[first:])


@pytest.mark.thorough
def test_a_training_run_that_reads_on_hosts_goes_on_with_an_iterator_over_those_that_are_left(connected) -> None:
    cell = connected.run(TRAIN, timeout=SOON)
    # By what is noticed first: the iterator, or a step that has to be repeated with a batch that it gave before.
    said = {
        "LostError": r"slice 1 went down\.\n.*Make it again with colocated\.iterator",
        "ElasticRuntimeError": r"Batch \d+, .*, went with the slice or proxy that it was on\.\n.*a new iterator",
    }
    assert re.search(said[cell.error], cell.shown), cell.shown
    again = connected.run("result = train()\nprint(result.step, float(result.state[0]))", timeout=SOON)
    assert "60 60.0" in again.text, again.shown


@pytest.mark.thorough
def test_a_sidecar_that_dies_takes_no_other_hosts_process_along(connected) -> None:
    before = pids(connected)
    connected.run("%%colocated\nkept = 1")
    request = begin(connected)
    os.kill(before[1], signal.SIGKILL)
    assert_one_message(connected.finish(request, timeout=SOON), LOSSES["a sidecar's process"][1])
    again = connected.run("%%colocated\nimport os\n(os.getpid(), 'kept' in globals())")
    assert again.status == "ok", again.shown
    assert "[host 1] The sidecar restarted" in again.text
    assert f"[host 0] ({before[0]}, True)" in again.text
    assert str(before[1]) not in again.text


def test_user_code_that_crashes_ends_the_call_only(connected) -> None:
    connected.run("%%colocated\n1")
    # A signal that the process sends to itself ends its main thread first: a cell, in another one, can still finish.
    cell = connected.run("%%colocated --hosts 1\nimport ctypes\nctypes.string_at(0)", timeout=SOON)
    assert_one_message(cell, "host 1")
    assert connected.run("%%colocated\n1").text.strip().endswith("[hosts 0, 1] 1")
    assert "28.0" in connected.run("import jax; print(float(jax.numpy.arange(8.0).sum()))").text
