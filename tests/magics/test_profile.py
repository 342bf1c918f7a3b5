"""Profiles in a notebook and a terminal: a cell with a trace, one over several cells, a running session."""

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import portpicker
import pytest
from waits import wait_until

pytestmark = pytest.mark.timeout(240)

CONNECT = "%pathways connect --local --tpu tpuv6e:2x2=2"
STEP = """
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), ("chips",))
x = jax.device_put(jnp.ones((512, 512)), NamedSharding(mesh, P("chips")))

@jax.jit
def step(x):
    with jax.named_scope("slow_layer"):
        y = jnp.tanh(x @ x.T)
    return (y @ x).sum()

step(x).block_until_ready()
"""
RUN = "for _ in range(3): step(x).block_until_ready()"


@pytest.fixture(scope="module")
def connected(cluster, machine, shared_notebook):
    assert shared_notebook.run("%load_ext pathways_jupyter").status == "ok"
    ran = shared_notebook.run(CONNECT)
    assert ran.status == "ok", ran.shown
    assert shared_notebook.run(STEP).status == "ok"
    yield shared_notebook
    shared_notebook.run("%pathways disconnect")


def shown(cell):
    """The last picture of a profile in the outputs of a cell, as text and as HTML."""
    (output,) = [each for each in cell.outputs if "Profile of" in each.get("data", {}).get("text/plain", "")]
    return output["data"]["text/plain"], output["data"]["text/html"]


def test_a_cell_is_run_and_its_chips_are_shown(connected):
    ran = connected.run(f"%%pathways profile\n{RUN}\n'the cell has ' + 'ended'")
    assert ran.status == "ok", ran.shown
    assert "the cell has ended" in ran.text
    text, html = shown(ran)
    assert re.search(r"Profile of 8 chips for .*jit_step ran 3 times", text), text
    assert text.count("slice 0 ") == text.count("slice 1 ") == 4
    assert "slow_layer/dot_general" in text
    assert re.search(r"slow_layer/.*Cell In\[\d+\], line \d+", text), text
    assert "computing" in text
    # The picture and the command stay in a saved notebook.
    assert html.count("<path") >= 8
    assert "xprof --logdir gs://pathways-local/profiles</code>" in html


def test_the_command_below_a_picture_serves_the_trace_with_xprof(connected, machine):
    text, _ = shown(connected.run(f"%%pathways profile\n{RUN}"))
    location = re.search(r"Trace: (gs://\S+)", text)[1]
    command = re.search(r"in XProf: (.* xprof --logdir \S+)", text)[1]
    port, workers = portpicker.pick_unused_port(), portpicker.pick_unused_port()
    address = f"http://localhost:{port}/data/plugin/profile/runs"
    path = f"{Path(sys.executable).parent}{os.pathsep}{machine.environ['PATH']}"
    with subprocess.Popen(
        f"exec env {command} --port {port} --grpc_port {workers}", shell=True, env={**machine.environ, "PATH": path}
    ) as serving:
        try:

            def runs() -> list[str]:
                with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=30) as answer:
                    content = answer.read()
                    return json.loads(gzip.decompress(content) if answer.headers["Content-Encoding"] else content)
                return []

            # It imports much, of which nothing may be in the machine's memory yet.
            wait_until(lambda: location.rpartition("/")[2] in runs(), 120)
        finally:
            serving.kill()


def test_a_trace_over_several_cells_and_a_trace_shown_again(connected):
    assert "traced from now on" in connected.run("%pathways profile start").text
    connected.run(RUN)
    stopped = connected.run("%pathways profile stop")
    text, _ = shown(stopped)
    assert "jit_step ran 3 times" in text
    location = re.search(r"gs://\S+", text)[0]
    assert shown(connected.run(f"%pathways profile show {location}"))[0] == text
    nothing = connected.run("%pathways profile stop")
    assert "No trace is being taken." in nothing.shown


def test_an_interrupt_ends_the_cell_and_the_trace_but_not_the_session(connected):
    request = connected.begin(f"%%pathways profile\n{RUN}\nprint('computed')\nimport time\ntime.sleep(60)")
    connected.finish(request, until="computed")
    connected.manager.interrupt_kernel()
    ended = connected.finish(request)
    assert ended.status == "error"
    assert ended.error == "KeyboardInterrupt"
    assert "jit_step ran 3 times" in shown(ended)[0]
    assert connected.run("print('sum', float(step(x)))").text.startswith("sum")


def test_an_error_in_the_cell_is_shown_once_after_what_the_chips_did(connected):
    failed = connected.run(f"%%pathways profile\n{RUN}\nraise ValueError('no data')")
    assert failed.status == "error"
    assert "jit_step ran 3 times" in shown(failed)[0]
    plain = re.sub(r"\x1b\[[\d;]*m", "", failed.shown)
    assert re.search(r"raise ValueError.*ValueError: no data", plain, re.DOTALL)
    # By the number that the notebook shows beside it, as any other cell.
    assert len(set(re.findall(r"Cell In\[(\d+)\], line", plain))) == 1, plain
    assert "magics/" not in plain, plain


def test_two_traces_of_one_second_are_two(connected):
    quick = "import pathways_jupyter\nsession = pathways_jupyter.current_session()\n"
    quick += "print(*{session.profile().location for _ in range(20)})"
    assert len(connected.run(quick).text.split()) == 20


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%%pathways profile --to /tmp/x\n1", "to a bucket, not to /tmp/x"),
        ("%%pathways profile --device fast\n1", "no device level fast"),
        ("%%pathways profile --host 9\n1", "no host level 9"),
        ("%%pathways profile --to gs://missing-bucket\n1", "did not start a trace"),
        ("%%pathways profile --to gs://missing-bucket\n1", "Check the bucket's name"),
        ("%%pathways status\n1", "Only profile takes a cell"),
        ("%pathways profile show gs://pathways-local/nothing", "No host has written a trace"),
        ("%pathways profile show gs://pathways-local/nothing", "Where its proxy ended before the trace was stopped"),
    ],
)
def test_what_cannot_be_traced_says_why_and_runs_nothing(connected, line, message):
    refused = connected.run(line)
    assert refused.status == "error"
    assert message in refused.shown
    assert connected.run("%pathways profile stop").status == "error"


def begin_to_compute(connected, code):
    """Begin a cell that runs `code` again and again."""
    request = connected.begin(f"print('begins')\nwhile True: {code}")
    connected.finish(request, until="begins")
    return request


def stop_computing(connected, request):
    connected.manager.interrupt_kernel()
    connected.finish(request)


def tracing(machine, *arguments):
    """Start a ``pathways-jupyter profile``, and return it when it traces."""
    command = [sys.executable, "-m", "pathways_jupyter", "profile", *arguments]
    process = subprocess.Popen(command, env=machine.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until_it_says(process, "Tracing session")
    return process


def until_it_says(process, words):
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    raise AssertionError("".join(said))


@pytest.mark.thorough
def test_a_busy_session_is_traced_from_a_terminal(connected, machine):
    request = begin_to_compute(connected, "step(x).block_until_ready()")
    with tracing(machine, "--seconds", "1", "--json") as process:
        # More steps would only keep the machine from reading the trace.
        until_it_says(process, "Waiting for the hosts")
        stop_computing(connected, request)
        out, said = process.communicate(timeout=120)
    # Nothing more on standard error, such as what JAX's native code prints when its connection ends.
    assert (process.returncode, said) == (0, "")
    found = json.loads(out)
    assert len(found["chips"]) == 8
    assert any("slow_layer" in each["scope"] for each in found["operations"])
    assert found["location"].startswith("gs://pathways-local/profiles/")
    again = machine.cli("profile", "show", found["location"])
    assert "Profile of 8 chips" in again.stdout, again.stderr


@pytest.mark.thorough
def test_an_interrupt_in_the_terminal_ends_the_trace_and_shows_it(connected, machine, tmp_path):
    stepped = tmp_path / "stepped"
    request = begin_to_compute(connected, f"step(x).block_until_ready(); open({str(stepped)!r}, 'w').close()")
    with tracing(machine, "--seconds", "300") as process:
        for _ in range(2):
            # The first step may have begun before the trace.
            stepped.unlink(missing_ok=True)
            wait_until(stepped.exists)
        process.send_signal(signal.SIGINT)
        until_it_says(process, "Waiting for the hosts")
        stop_computing(connected, request)
        out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "Profile of 8 chips" in out


@pytest.mark.thorough
def test_a_trace_ends_with_its_proxy_and_stays_readable(connected):
    for command in ("reconnect --yes", "suspend --yes", "disconnect"):
        again = connected.run("%pathways profile start")
        assert again.status == "ok", again.shown
        connected.run("import pathways_jupyter; taken = pathways_jupyter.current_session().trace")
        connected.run("import jax.numpy as jnp; jnp.ones(8).sum().block_until_ready()")
        ended = connected.run(f"%pathways {command}")
        assert ended.status == "ok", ended.shown
        (location,) = re.findall(r"trace of the chips is stopped; %pathways profile show (gs://\S+)", ended.text)
        assert "No trace is being taken." in connected.run("%pathways profile stop").shown
        if command.startswith("suspend"):
            assert connected.run("%pathways resume --yes").status == "ok"
        assert "Profile of" in shown(connected.run(f"%pathways profile show {location}"))[0]
    assert "not connected" in connected.run("%pathways profile start").shown
    # Python reads it without the session too, from where the command does.
    assert "Module(name=" in (last := connected.run("print(taken.summary())")).text, last.shown
    assert connected.run(CONNECT).status == "ok"
    assert connected.run(STEP).status == "ok"


def test_a_trace_beside_one_that_runs_leads_to_that_one(connected):
    assert connected.run("%pathways profile start").status == "ok"
    for another in (
        "%pathways profile start",
        "%%pathways profile\n1",
        "import pathways_jupyter\nwith pathways_jupyter.current_session().profile(): pass",
    ):
        refused = connected.run(another)
        assert refused.status == "error"
        assert "A trace is being taken already." in refused.shown
        assert "%pathways profile stop ends it." in refused.shown
    assert connected.run("%pathways profile stop").status == "ok"


def test_a_trace_in_python_ends_with_its_proxy(connected):
    around = """
import jax.numpy as jnp, pathways_jupyter
with pathways_jupyter.current_session().profile() as trace:
    jnp.ones(8).sum().block_until_ready()
    %pathways suspend --yes
print(trace.summary())
"""
    traced = connected.run(around)
    assert traced.status == "ok", traced.shown
    assert "trace of the chips is stopped" in traced.text
    assert "Module(name=" in traced.text
    assert connected.run("%pathways resume --yes").status == "ok"


@pytest.mark.thorough
def test_a_trace_whose_proxy_was_removed_from_outside_is_lost_in_words(machine, connected):
    assert connected.run("%pathways profile start").status == "ok"
    session = json.loads(machine.cli("sessions", "--json").stdout)[0]["id"]
    assert machine.cli("sessions", "disconnect", session).returncode == 0
    # Known to the kernel, perhaps, only once the next cell has begun.
    assert "trace of the chips is lost: its proxy is gone" in connected.run("1").text + connected.run("2").text
    assert "No trace is being taken." in connected.run("%pathways profile stop").shown
    assert connected.run(CONNECT).status == "ok"
    assert connected.run(STEP).status == "ok"


def test_a_slice_that_is_lost_ends_the_trace_cleanly(connected):
    connected.run("%pathways profile start")
    connected.run(RUN)
    assert connected.run("%pathways elastic inject slice-down 1 --for 1s").status == "ok"
    stopped = connected.run("%pathways profile stop")
    assert stopped.status == "ok", stopped.shown
    assert "Profile of" in shown(stopped)[0]
