"""pathways_jupyter.connect() in a notebook and in a terminal: what it shows meanwhile, and that it can be silent."""

import os
import pty
import re
import subprocess
import sys

import holders
import pytest

from tests.magics.test_notebook import DELETE_THE_PROXY

pytestmark = pytest.mark.thorough

CONNECT = """
import pathways_jupyter
session = pathways_jupyter.connect(kubeconfig={kubeconfig!r}, tpu={{"tpuv6e:2x2": 2}}{more})
"""
LET_GO = "session.disconnect()"


@pytest.fixture
def code(cluster):
    return lambda **more: CONNECT.format(
        kubeconfig=str(cluster), more="".join(f", {name}={value!r}" for name, value in more.items())
    )


@pytest.fixture
def taken(machine, cluster, monkeypatch):
    """Another session, which holds both slices until it is closed."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", machine.environ["JUPYTER_RUNTIME_DIR"])
    link = holders.hold(cluster, instances={"tpuv6e:2x2": 2})
    yield link
    assert link.close(patience=holders.DEADLINE)


@pytest.fixture
def disconnected(shared_notebook):
    """A notebook that is not connected, before the test and after it."""
    shared_notebook.displays.clear()
    shared_notebook.seen.clear()
    yield shared_notebook
    shared_notebook.run("pathways_jupyter.current_session() and pathways_jupyter.current_session().disconnect()")


def test_in_a_notebook_it_shows_why_it_waits_and_that_it_is_done(taken, disconnected, code):
    request = disconnected.begin(code(wait=60))
    disconnected.wait_for("holds 2")
    assert taken.close(patience=holders.DEADLINE)
    connected = disconnected.finish(request)
    assert connected.status == "ok", connected.shown
    (drawn,) = disconnected.displays.values()
    assert "connected" in drawn["data"]["text/plain"]
    assert "8 devices on 2 slices" in drawn["data"]["text/plain"]
    assert "Connected" in drawn["data"]["text/html"]
    # Nothing has loaded the magics by hand.
    assert "connected" in disconnected.run("%pathways status").text


def test_in_a_notebook_a_lost_proxy_is_reported_without_asking(disconnected, code):
    connected = disconnected.run(code(wait=60))
    assert connected.status == "ok", connected.shown
    disconnected.run(DELETE_THE_PROXY)
    assert "%pathways reconnect" in disconnected.wait_for("All arrays on TPUs are lost")
    assert disconnected.run("%pathways reconnect").status == "ok"
    assert disconnected.run("import jax; print(len(jax.devices()))").text.strip() == "8"


def test_in_a_notebook_it_can_be_silent_and_an_interrupt_reaches_the_code_around_it(taken, disconnected, code, cluster):
    refused = disconnected.run(code(progress=False, wait=2))
    assert refused.error == "CapacityError"
    assert "wait=True waits without end" in refused.shown
    assert disconnected.displays == {}
    disconnected.run("%load_ext pathways_jupyter")
    by_magic = disconnected.run(f"%pathways connect --kubeconfig {cluster} --tpu v6e-4=2")
    assert "Add --wait to get them" in by_magic.shown
    cell = "try:\n" + code(wait=True).replace("\n", "\n    ") + "\nexcept Exception: print('hidden')"
    first = len(disconnected.seen)
    request = disconnected.begin(cell)
    disconnected.wait_for("holds 2", since=first)
    disconnected.manager.interrupt_kernel()
    cell = disconnected.finish(request)
    assert (cell.error, "hidden" in cell.text) == ("KeyboardInterrupt", False)


def script(machine, code, **more):
    """Runs a script whose standard error is a terminal; what it wrote there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}\nprint(session.state)\n{LET_GO}"],
        env=machine.environ,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        **more,
    ) as process:
        os.close(theirs)
        output = b""
        while piece := _read(ours):
            output += piece
            if b"holds 2" in output:
                yield output.decode()
        yield output.decode()
        assert process.stdout.read() == "connected\n"
        assert process.wait(timeout=60) == 0
    os.close(ours)


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:
        # What a terminal says on Linux once no process writes to it any more.
        return b""


def test_in_a_terminal_it_says_on_standard_error_what_it_waits_for(taken, machine, code):
    outputs = script(machine, code(wait=60))
    assert "place the slices" in next(outputs)
    assert taken.close(patience=holders.DEADLINE)
    *_, everything = outputs
    assert "✓ connected" in everything
    # What a screen still shows of it: each stage gave way to the next.
    left = [line.rpartition("\x1b[J")[2].strip() for line in everything.split("\n")]
    assert [line for line in left if line.startswith("…")] == []


def test_in_a_pipe_it_is_silent_unless_asked_for(taken, machine, code):
    choices = (None, True)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code(wait=3, progress=progress)],
            env=machine.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for progress in choices
    ]
    for progress, process in zip(choices, running, strict=True):
        out, errors = process.communicate(timeout=60)
        assert out == ""
        assert "CapacityError" in errors
        # The hint says how long it waited, and speaks Python.
        hint = r"^Waited \d+ s for them\. wait=True waits without end; or ask for fewer\. \(more: "
        assert re.search(hint, errors, re.M)
        assert ("… place the slices" in errors) is bool(progress)
