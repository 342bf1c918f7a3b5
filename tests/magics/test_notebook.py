"""%pathways in a real kernel, on the embedded cluster."""

import contextlib
import json
import os
import re
import signal
import time

import psutil
import pytest
from waits import wait_until

WHOLE = "logs rm --tail 1000000"
"""Also what was logged before all the sessions of other tests."""
CONNECT = "%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2"
KILL_A_WORKER = """
from pathways_jupyter.session import clusters
from pathways_jupyter.actions import cluster
from pathways_jupyter.kube import objects
from pathways_jupyter.session.kernel import session as sessions

async def kill(client, namespace):
    labels = "jobset.sigs.k8s.io/replicatedjob-name=worker,jobset.sigs.k8s.io/job-index=1"
    pods = await objects.list_(client, objects.PODS, namespace=namespace, labels=labels)
    for pod in pods.items:
        await objects.delete(client, objects.PODS, pod["metadata"]["name"], namespace=namespace, grace_seconds=0)

clusters.ask(sessions.current().record, kill)
"""
DELETE_THE_PROXY = """
from pathways_jupyter.session import clusters
from pathways_jupyter.kube import objects
from pathways_jupyter.session.kernel import session as sessions

record = sessions.current().record
clusters.ask(record, lambda client, namespace: objects.delete(
    client, objects.PODS, record.pod, namespace=namespace, grace_seconds=0))
"""
INTERRUPT_THE_DISCONNECT = """
import os, signal
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink

answer = SupervisorLink.answer

def interrupted(self, *arguments, **options):
    SupervisorLink.answer = answer
    os.kill(os.getpid(), signal.SIGINT)
    return answer(self, *arguments, **options)

SupervisorLink.answer = interrupted
%pathways disconnect
"""
INTERRUPT_THE_CONNECT = """
import os, signal
from pathways_jupyter.actions import cluster

stage = cluster.embedded_stage

def interrupted(requested):
    # Before it has taken the supervisor that was started when the extension was loaded.
    cluster.embedded_stage = stage
    os.kill(os.getpid(), signal.SIGINT)
    return stage(requested)

cluster.embedded_stage = interrupted
%pathways connect --local --tpu tpuv6e:2x2=1
"""
INTERRUPT_THE_OUTPUT = """
import os, signal, threading
from ipykernel.iostream import IOPubThread

schedule = IOPubThread.schedule
written = []

def interrupted(self, write):
    # Whatever a cell shows passes here.
    if threading.current_thread() is threading.main_thread():
        IOPubThread.schedule = schedule
        os.kill(os.getpid(), signal.SIGINT)
        written.append("whole")
    schedule(self, write)

IOPubThread.schedule = interrupted
%pathways {command}
print("The cell went on.")
"""
INTERRUPT_THE_RECONNECT = """
import os, signal
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink

watch = SupervisorLink.watch

def interrupted(self, since=0, *, until=None):
    if until is not None:
        SupervisorLink.watch = watch
        os.kill(os.getpid(), signal.SIGINT)
    return watch(self, since, until=until)

SupervisorLink.watch = interrupted
%pathways reconnect --yes
"""


def in_session(notebook):
    """Connect a notebook, which has shown nothing else; where it is connected already, this shows its session."""
    notebook.displays.clear()
    notebook.seen.clear()
    cell = notebook.run(CONNECT)
    assert cell.status == "ok", cell.shown
    return notebook


@pytest.fixture
def undisturbed(shared_notebook, cluster):
    """The notebook, connected; for tests that leave its session as it is, and so share it."""
    return in_session(shared_notebook)


@pytest.fixture
def connected(shared_notebook, cluster):
    """The notebook, connected by a session of the test's own."""
    shared_notebook.run("%pathways disconnect")
    yield in_session(shared_notebook)
    shared_notebook.run("%pathways disconnect")


def supervisors(notebook):
    """The supervisors that the kernel of a notebook has started."""
    found = []
    for each in psutil.Process(notebook.manager.provisioner.pid).children():
        # It may end while it is looked at.
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE and "supervisor" in str(each.cmdline()):
                found.append(each)
    return found


def sessions(machine):
    return json.loads(machine.cli("sessions", "--json").stdout)


@pytest.mark.thorough
def test_a_connect_that_is_run_again_shows_the_session_and_another_one_is_refused(undisturbed, machine):
    before = sessions(machine)
    cell = undisturbed.run(CONNECT)
    assert cell.status == "ok", cell.shown
    assert f"Session {before[0]['id']}: connected" in cell.text
    other = undisturbed.run("%pathways connect --local --tpu tpuv6e:2x2=1")
    assert other.status == "error"
    assert "connected already" in other.shown
    assert [each["id"] for each in sessions(machine)] == [before[0]["id"]]


def test_a_connected_notebook_computes_on_two_slices_and_lets_go_of_them(connected, machine):
    seen = connected.run(
        "import jax, jax.numpy as jnp\nprint(len(jax.devices()), {d.slice_index for d in jax.devices()})"
    )
    assert seen.text.strip() == "8 {0, 1}"
    connected.run("weights = {'w': jnp.arange(8.0)}\nprint(float(jax.jit(jnp.sum)(weights['w'])))")
    assert "connected" in connected.run("%pathways status").text
    slices = connected.run("%pathways slices")
    assert slices.text.count("this notebook") == 2
    assert "this notebook" in slices.html
    assert connected.run("%pathways slices --local").text.count("this notebook") == 2
    over = connected.run("%pathways disconnect")
    assert "JAX is as it was before" in over.text
    assert "weights['w']: float32[8]" in over.text
    assert connected.run("print(jax.devices()[0].platform)").text.strip() == "cpu"
    assert sessions(machine) == []


def test_the_connections_card_is_drawn_in_place_of_its_progress_and_a_second_connect_says_what_to_do(connected):
    (card,) = connected.displays.values()
    assert "connected" in card["data"]["text/plain"]
    assert "slice 1" in card["data"]["text/html"]
    assert not re.search(r"#fff\b|: *white\b", card["data"]["text/html"])
    again = connected.run("%pathways connect --local --tpu tpuv6e:2x2=1")
    assert again.error == "SessionError"
    assert "%pathways disconnect" in again.shown


def test_a_lost_and_a_healed_slice_are_reported_without_asking(connected):
    connected.run(KILL_A_WORKER)
    assert "DATA_LOSS" in connected.wait_for("down")
    assert "New arrays can be put on it" in connected.wait_for("New arrays")
    card, _notice = connected.displays.values()
    assert "slice 1" in card["data"]["text/html"]
    events = connected.run("%pathways events").text
    assert "down" in events


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("inject slice-down 9 --after 1s", "Slice 9 is not one of this session's."),
        ("inject slice-down 9 --at-step 1", "Slice 9 is not one of this session's."),
        ("inject drain-node 1 --at-step 1 --for 0", "A fault must last longer than 0 s."),
    ],
)
def test_a_fault_for_later_that_makes_no_sense_is_refused_now(undisturbed, line, said):
    cell = undisturbed.run(f"%pathways elastic {line}")
    assert (cell.error, said in cell.shown) == ("ConfigError", True), cell.shown


def test_a_lost_proxy_is_reported_and_reconnecting_gets_a_new_one(connected, machine):
    connected.run(DELETE_THE_PROXY)
    assert "%pathways reconnect" in connected.wait_for("%pathways reconnect")
    (lost,) = sessions(machine)
    again = connected.run("%pathways reconnect")
    assert again.status == "ok", again.shown
    assert connected.run("import jax\nprint(len(jax.devices()))").text.strip() == "8"
    (record,) = sessions(machine)
    assert (record["id"], record["state"]) == (lost["id"], "connected")
    assert record["pod"] != lost["pod"]
    _card, notice, _progress = connected.displays.values()
    assert "A new proxy is connected since" in notice["data"]["text/plain"]
    assert "%pathways reconnect" not in notice["data"]["text/plain"]


def test_logs_of_every_program_are_one_command_away_and_can_be_followed(undisturbed):
    assert "unplaced -> placed" in undisturbed.run("%pathways logs proxy").text
    assert "Pathways Slices Now Ready" in undisturbed.run(f"%pathways {WHOLE}").text
    assert "29005" in undisturbed.run("%pathways logs worker 1 --tail 1000000").text
    assert "connected" in undisturbed.run("%pathways logs supervisor").text.lower()
    absent = undisturbed.run("%pathways logs worker 7")
    assert absent.error == "ConfigError"
    assert "0 to 1" in absent.shown
    mistyped = undisturbed.run("%pathways logs rn")
    assert "'rn' is not one of 'rm', 'worker', 'proxy', 'supervisor'." in mistyped.shown
    # Following one ends with Interrupt, and the connection stays.
    request = undisturbed.begin(f"%pathways {WHOLE} -f")
    undisturbed.finish(request, until="Slices Now Ready")
    undisturbed.manager.interrupt_kernel()
    assert "no longer following" in undisturbed.finish(request).text
    assert undisturbed.run("import jax\nprint(len(jax.devices()))").text.strip() == "8"


@pytest.mark.parametrize("command", ["logs rm -f", "logs rm", "status", "slices", "sessions"])
def test_an_interrupt_ends_a_command_but_cuts_nothing_that_it_writes(undisturbed, command):
    cell = undisturbed.run(INTERRUPT_THE_OUTPUT.replace("{command}", command))
    if command == "logs rm -f":
        assert "no longer following" in cell.text
    else:
        assert cell.error == "KeyboardInterrupt"
        assert "The cell went on." not in cell.text
    assert undisturbed.run("print(written)").text.strip() == "['whole']"


@pytest.mark.thorough
def test_an_interrupted_reconnect_says_what_there_is_and_can_be_tried_again(connected):
    cell = connected.run(INTERRUPT_THE_RECONNECT)
    assert cell.status == "error"
    assert re.search(r"interrupted; session \S+ has (no proxy|a new proxy, which JAX does not use yet)\.", cell.shown)
    assert "%pathways reconnect tries again" in cell.shown
    again = connected.run("%pathways reconnect")
    assert again.status == "ok", again.shown
    assert connected.run("import jax\nprint(float(jax.numpy.ones(3).sum()))").text.strip() == "3.0"


@pytest.mark.thorough
def test_what_fails_after_the_proxy_is_lost_is_explained(connected):
    connected.run("import jax, jax.numpy as jnp\nx = jnp.arange(5.0)")
    place = "jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind='pinned_host')"
    connected.run(f"import numpy as np\nhost = jax.device_put(np.ones(3, np.float32), {place})")
    # A sharding that a variable holds becomes one of the next proxy, also in the array.
    connected.run("from jax.sharding import Mesh, NamedSharding, PartitionSpec")
    connected.run("on = NamedSharding(Mesh(np.array(jax.devices()), 'd'), PartitionSpec())")
    assert connected.run("spread = jax.device_put(np.ones(7, np.float32), on)").status == "ok"
    connected.run(DELETE_THE_PROXY)
    connected.wait_for("All arrays on TPUs are lost")
    named = connected.run("y = 1")
    assert "3 arrays became unusable: host: float32[3], spread: float32[7], x: float32[5]" in named.text
    failed = connected.run("jnp.ones(6)")
    # In the place of JAX's own lines, which the traceback has.
    assert "is lost since" in failed.shown
    assert "%pathways reconnect connects again" in failed.shown
    assert "UNAVAILABLE" in connected.run("%pathways traceback").text
    assert connected.run("%pathways reconnect").status == "ok"
    assert connected.run("print(float(jnp.ones(6).sum()))").text.strip() == "6.0"
    # What was on the earlier proxy is not there, and JAX's error does not say why.
    connected.run("donated = jnp.ones(9)\njax.jit(lambda each: each + 1, donate_argnums=0)(donated)")
    for cell in ("x", "print(x)", "x + 1", "x + jnp.ones(5)", "jax.jit(jnp.add)(x, jnp.ones(5))"):
        failed = connected.run(cell)
        assert failed.status == "error"
        assert "1 array was on a proxy that is gone, and lost with it: x: float32[5]" in failed.shown
        assert len(failed.shown.splitlines()) == 3, failed.shown
    assert "lost with it: host: float32[3]" in connected.run("host").shown
    assert "lost with it: spread: float32[7]" in connected.run("spread + 1").shown
    failed = connected.run("print(donated)")
    assert "deleted" in failed.shown
    assert "is gone" not in failed.text


@pytest.mark.thorough
def test_the_use_of_an_array_of_a_lost_slice_is_explained(connected):
    connected.run(
        "import jax, jax.numpy as jnp\nfrom jax.sharding import Mesh, NamedSharding, PartitionSpec\n"
        "both = NamedSharding(Mesh(jax.devices(), 'x'), PartitionSpec('x'))\nx = jax.device_put(jnp.arange(16.0), both)"
    )
    seen = len(connected.seen)
    connected.run("%pathways elastic inject slice-down 1")
    connected.wait_for("Slice 1 is down.", since=seen)
    for cell in ("x", "print(x)", "x + 1", "jax.device_put(x, jax.devices()[0])", "x.block_until_ready()"):
        failed = connected.run(cell)
        assert "Slice 1 was lost, and all arrays that were on it, in whole or in part." in failed.shown, failed.shown
        assert "Other slices work. Run the cells that make these arrays again, or %pathways load" in failed.shown
        assert len(failed.shown.splitlines()) == 3, failed.shown
    assert "DATA_LOSS" in connected.run("%pathways traceback").text
    assert connected.run("print(float(jnp.ones(6).sum()))").text.strip() == "6.0"


@pytest.mark.thorough
def test_every_sentence_counts_the_same_arrays(connected):
    connected.run("import jax, jax.numpy as jnp\nx = jnp.arange(5.0)\nalso = [x]\nlater = iter((x + 2,))")
    # In Out, and in _.
    assert connected.run("x + 1").status == "ok"
    request = connected.begin("%pathways reconnect")
    question = connected.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    assert "its 3 arrays (60 bytes)" in question
    connected.client.input("n")
    connected.finish(request)
    counted = connected.run(
        "import pathways_jupyter\nprint(pathways_jupyter.current_session().count_arrays()['count'])"
    ).text
    assert counted.strip() == "3"
    request = connected.begin("%pathways suspend")
    assert (
        "2 arrays (40 bytes) can be kept, but not: later[0]: float32[5], held by later (tuple_iterator)."
        in connected.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    )
    connected.client.input("n")
    connected.finish(request)
    ended = connected.run("%pathways disconnect")
    past = connected.run("%pathways events")
    assert "This notebook is not connected. Its last session was " in past.text
    assert "connected" in past.text.partition("\n")[2]
    assert "Lost arrays: 3, 60 bytes." in past.text
    assert "%pathways connect --help shows how" in connected.run("%pathways logs").shown
    assert re.search(
        r"3 arrays became unusable: later\[0\]: float32\[5\], x: float32\[5\], Out\[\d+\]: float32\[5\]", ended.text
    )


@pytest.mark.thorough
def test_the_first_use_of_an_array_that_was_made_before_is_explained(connected):
    connected.run("%pathways disconnect")
    connected.run("import jax, jax.numpy as jnp\nbefore = jnp.arange(3.0)")
    connected.run("%pathways connect --local --tpu tpuv6e:2x2=2")
    seen = len(connected.seen)
    failed = connected.run("before + 1")
    assert "non-PjRt-compatible" in failed.shown
    explained = connected.wait_for("made before this notebook connected", since=seen)
    assert "before: float32[3]" in explained
    assert len(explained.splitlines()) == 2
    moved = explained.splitlines()[1].partition(": ")[2].removesuffix(" does.")
    assert connected.run(f"{moved}\nprint(float((before + 1).sum()))").text.strip() == "6.0"
    connected.run("del before")


def test_a_disconnect_that_is_interrupted_is_one_line_and_goes_on(connected, machine):
    (session,) = sessions(machine)
    os.kill(session["pid"], signal.SIGSTOP)
    try:
        cell = connected.run(INTERRUPT_THE_DISCONNECT)
    finally:
        os.kill(session["pid"], signal.SIGCONT)
    assert cell.error == "SessionError"
    assert len(cell.shown.splitlines()) == 2
    assert "is still being removed" in cell.shown
    deadline = time.monotonic() + 60
    while sessions(machine):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("computes", [False, True])
def test_a_session_ended_from_a_terminal_is_reported_and_jax_is_put_back(connected, machine, computes):
    if computes:
        code = "import jax.numpy as jnp\nx = jnp.ones(8)\nwhile True: x = (x + 1).block_until_ready()"
        running = connected.begin(code)
    ended = machine.cli("sessions", "disconnect")
    assert ended.returncode == 0, ended.stderr
    if computes:
        cell = connected.finish(running)
        assert re.search(r"Session \w+ (is ending|has ended)\..*\n.*[Cc]onnect", cell.shown), cell.shown
        assert "reconnect" not in cell.shown
        assert "Traceback" not in cell.shown
    # The kernel receives the event at its own pace, and the next cell then says so.
    deadline = time.monotonic() + 60
    while "ended from outside" not in (output := connected.run("import jax\nprint(jax.devices()[0].platform)")).text:
        assert time.monotonic() < deadline
    assert "cpu" in output.text
    assert "not connected" in connected.run("%pathways status").text


@pytest.mark.thorough
def test_interrupting_a_connect_that_waits_leaves_nothing(connected, notebook, machine, cluster):
    from_cell = f"import os\nos.environ['KUBECONFIG'] = {str(cluster)!r}"
    other = notebook
    other.run(from_cell)
    logs = set(machine.runtime.glob("pathways/*.log"))
    interrupted = other.run(f"%load_ext pathways_jupyter\n{INTERRUPT_THE_CONNECT}")
    assert "Connecting was interrupted. Everything that it had created was removed." in interrupted.shown
    wait_until(lambda: set(machine.runtime.glob("pathways/*.log")) <= logs and not supervisors(other))
    refused = other.run("%pathways connect --tpu tpuv6e:2x2=1")
    assert refused.error == "CapacityError"
    assert "holds 2" in refused.shown
    seen = len(other.seen)
    request = other.begin("%pathways connect --tpu tpuv6e:2x2=1 --wait")
    other.wait_for("holds 2", since=seen)
    other.manager.interrupt_kernel()
    cell = other.finish(request)
    assert (cell.error, len(cell.shown.splitlines())) == ("SessionError", 1)
    assert len(sessions(machine)) == 1
    seen = len(other.seen)
    request = other.begin("%pathways connect --tpu tpuv6e:2x2=1 --wait")
    other.wait_for("holds 2", since=seen)
    connected.run("%pathways disconnect")
    assert other.finish(request).status == "ok"


def test_tab_completes_in_a_kernel(shared_notebook):
    shared_notebook.run("%load_ext pathways_jupyter")
    answer = shared_notebook.client.complete("%pathways connect --tpu tpuv6e:2x", reply=True, timeout=60)
    assert answer["content"]["matches"] == ["tpuv6e:2x2=", "tpuv6e:2x4="]


@pytest.mark.thorough
def test_a_slice_that_comes_and_goes_leaves_one_output_below_the_cell_during_which_it_did(connected):
    for _ in range(2):
        seen = len(connected.seen)
        assert connected.run(KILL_A_WORKER).status == "ok"
        connected.wait_for("DATA_LOSS", since=seen)
        # Its return is drawn where its loss was, also when another cell runs by then.
        connected.run("'another cell'")
        healed = connected.wait_for("remain lost", since=seen)
        assert re.search(r"Slice 1 was down from [-0-9]+ [0-9:]+ to [0-9:]+\.", healed)
        connected.wait_for("connected, since", since=connected.seen.index(healed))
    card, *notices = [each["data"] for each in connected.displays.values()]
    assert "connected, since" in card["text/plain"]
    assert "down" not in card["text/plain"]
    assert [notice["text/plain"].count("Slice 1") for notice in notices] == [1, 1]
    assert all(len(notice["text/html"]) < 2_500 for notice in notices)
