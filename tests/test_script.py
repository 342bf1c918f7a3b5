"""A script's session where something ends in the middle of it: the embedded cluster, or the user's patience."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waits import wait_until

DEADLINE = 110

RECONNECT = """
import sys
import jax.numpy as jnp
import pathways_jupyter
from pathways_jupyter.local import cluster

session = pathways_jupyter.connect(local=True, tpu="tpuv6e:2x2=1")
assert cluster.down()
for event in session.follow():
    if session.state == "lost":
        break
session.reconnect()
print(session.state, jnp.ones(2).sum(), len(session.devices()))
session.disconnect()
"""

REFUSED = """
import atexit
from pathways_jupyter.session.kernel import attempt

# What a connection begins with; the script ends at once, as one whose connection is refused does.
imported = attempt.import_jax()
atexit.register(lambda: print("still imports:", not imported.is_set()))
"""

ENDING = """
import os, signal, sys, threading
import pathways_jupyter

def interrupt(main=threading.get_ident()):
    # When the main thread waits for the supervisor, which does not answer.
    while not any(code == "finish" for code in stack(sys._current_frames()[main])):
        pass
    os.kill(os.getpid(), signal.SIGINT)

def stack(frame):
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back

def main():
    session = pathways_jupyter.connect(local=True, tpu="tpuv6e:2x2=1")
    print(session.record.pid, flush=True)
    os.kill(session.record.pid, signal.SIGSTOP)
    threading.Thread(target=interrupt, daemon=True).start()
    session.disconnect()

main()
"""

ABANDONED = """
import os, signal, sys, threading
import pathways_jupyter
from pathways_jupyter.session import registry

def interrupt(main=threading.get_ident()):
    # When the main thread waits for the slices, and again when it waits for the supervisor, which does not answer.
    waits_in("watch", main)
    while not (records := registry.sessions()):
        pass
    print(records[0].pid, flush=True)
    os.kill(records[0].pid, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGINT)
    waits_in("finish", main)
    os.kill(os.getpid(), signal.SIGINT)

def waits_in(function, main):
    while not any(code == function for code in stack(sys._current_frames()[main])):
        pass

def stack(frame):
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back

def main():
    threading.Thread(target=interrupt, daemon=True).start()
    pathways_jupyter.connect(local=True, tpu="tpuv6e:2x2=1")

main()
"""

IMPORTING = """
import sys, time

class Slow:
    def find_spec(self, name, path, target=None):
        if name == "jax.extend":
            until = time.monotonic() + 5
            while time.monotonic() < until:
                exec("1")
                time.sleep(0.01)

sys.meta_path.insert(0, Slow())
"""
"""Makes importing JAX slow, and what many imports do: execute code from a string."""

INTERRUPTED = """
import sys
import pathways_jupyter

def main():
    session = pathways_jupyter.connect(local=True, tpu="tpuv6e:2x2=1"{wait})
    print("connected", flush=True)
    session.disconnect()

print("begun", flush=True)
main()
"""


@contextlib.contextmanager
def small_cluster(machine):
    """The environment of a machine with an embedded cluster of one slice, which programs may end."""
    with machine.own_cluster("--tpu", "tpuv6e:2x2=1") as own:
        yield own.environ


@pytest.fixture(scope="module")
def shared(machine):
    with small_cluster(machine) as environ:
        yield environ


@pytest.fixture
def alone(machine, shared):
    """The environment of a small cluster whose slice is free, and is free again when the test has ended."""
    yield shared
    wait_until(lambda: json.loads(machine.cli("sessions", "--json", **shared).stdout) == [])


@pytest.mark.thorough
def test_reconnecting_starts_the_embedded_cluster_again_where_it_has_ended(machine):
    with small_cluster(machine) as environ:
        done = machine.python("-c", RECONNECT, timeout=DEADLINE, **environ)
    assert done.stdout == "connected 2.0 4\n", done.stderr


def test_a_script_that_ends_while_jax_is_imported_waits_for_that(machine):
    """A thread that the end of the process cuts off inside C++ code aborts it."""
    done = machine.python("-c", REFUSED, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (0, "still imports: False\n"), done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("imports", ["", IMPORTING], ids=["", "while JAX is imported"])
def test_ctrl_c_while_connecting_shows_the_scripts_own_lines(alone, tmp_path, imports):
    """And it stays a KeyboardInterrupt, which a program around it expects."""
    script = tmp_path / "script.py"
    holding = INTERRUPTED.format(wait="").replace("session.disconnect()", "sys.stdin.readline()")
    holder = subprocess.Popen(
        [sys.executable, "-c", holding], env=alone, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "begun\n"
        assert holder.stdout.readline() == "connected\n"
        # The slice is taken, so that the next one is connecting for as long as it takes to interrupt it.
        script.write_text(imports + INTERRUPTED.format(wait=", wait=True, progress=True"))
        waiting = subprocess.Popen(
            [sys.executable, str(script)], env=alone, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        with waiting:
            said = ""
            while "holds 1" not in said:
                more = os.read(waiting.stderr.fileno(), 4096).decode()
                assert more, said
                said += more
            waiting.send_signal(signal.SIGINT)
            _, errors = waiting.communicate(timeout=DEADLINE)
        holder.communicate("\n", timeout=DEADLINE)
    assert waiting.returncode == -signal.SIGINT, errors
    own_lines_only(errors, script, "Connecting was interrupted. Everything that it had created was removed.")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (ENDING, "is still being removed."),
        (ABANDONED, "is still being removed; pathways-jupyter sessions lists it until it is gone."),
    ],
    ids=["disconnecting", "connecting"],
)
def test_ctrl_c_while_it_ends_says_what_is_left(alone, tmp_path, program, said):
    script = tmp_path / "script.py"
    script.write_text(program)
    with subprocess.Popen(
        [sys.executable, str(script)], env=alone, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ending:
        line = ending.stdout.readline()
        assert line, ending.stderr.read()
        supervisor = int(line)
        _, errors = ending.communicate(timeout=DEADLINE)
        os.kill(supervisor, signal.SIGCONT)
    assert ending.returncode == -signal.SIGINT
    own_lines_only(errors, script, said)


def own_lines_only(errors: str, script: Path, message: str) -> None:
    """Fails where a traceback is longer than the script's lines and the call of the package."""
    lines = errors[errors.index("Traceback") :].splitlines()
    assert lines[-1].startswith("KeyboardInterrupt: ")
    assert lines[-1].endswith(message)
    assert f'File "{script}"' in errors
    assert len([line for line in lines if line.startswith("  File")]) <= 4, errors
