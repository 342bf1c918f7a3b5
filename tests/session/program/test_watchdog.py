"""The two files that run beside a program, as processes of their own: its gate, and its watchdog."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from pathways_jupyter.session.program import gate, watchdog

DEADLINE = 60.0
WATCHDOG = [sys.executable, "-S", watchdog.__file__]
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
)


@pytest.fixture
def program():
    """Start a program in a process group of its own."""
    with contextlib.ExitStack() as stack:

        def start(*command):
            started = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            )
            stack.callback(started.kill)
            return started

        yield start


def watch(started: subprocess.Popen, *words: bytes) -> int | None:
    """Run the watchdog of a program whose parent writes `words` and ends; return the program's exit code."""
    with subprocess.Popen(WATCHDOG, stdin=subprocess.PIPE) as dog:
        dog.stdin.write(b"".join([f"{started.pid}\n".encode(), *words]))
        dog.stdin.close()
        if not words:
            # As the system's first process does, whose children those of a parent are that was killed.
            started.wait(DEADLINE)
        assert dog.wait(DEADLINE) == 0
    return started.poll()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_program_whose_parent_was_killed_is_asked_to_end(program, is_stopped):
    started = program("sleep", "600")
    if is_stopped:
        os.kill(started.pid, signal.SIGSTOP)
    assert watch(started) == -signal.SIGTERM


def test_one_that_refuses_is_killed_after_its_grace(program):
    started = program(sys.executable, "-S", "-c", STUBBORN)
    assert started.stdout.readline() == "on\n"
    began = time.monotonic()
    assert watch(started) == -signal.SIGKILL
    assert time.monotonic() - began >= watchdog._GRACE_SECONDS


def test_a_parent_that_says_that_it_is_done_leaves_the_group_alone(program):
    started = program("sleep", "600")
    assert watch(started, watchdog.DONE) is None


def test_a_group_that_is_gone_already_is_no_error(program):
    started = program("true")
    started.wait(DEADLINE)
    assert watch(started) == 0


@contextlib.contextmanager
def gated(*command):
    """A program behind a gate, and the end of the pipe that opens it."""
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-S", gate.__file__, str(reading), *command],
        pass_fds=[reading],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(reading)
        with open(writing, "wb", buffering=0) as opens:
            yield process, opens


def test_a_program_begins_once_its_gate_is_open():
    with gated("echo", "begun") as (process, opens):
        assert process.poll() is None
        opens.write(b".")
        out, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) == (0, "begun\n")


def test_a_parent_that_dies_before_it_opens_the_gate_leaves_no_program(tmp_path):
    with gated("touch", str(tmp_path / "begun")) as (process, opens):
        opens.close()
        assert process.wait(DEADLINE) == gate._NO_PARENT
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize(("mode", "code"), [(None, gate._NOT_FOUND), (0o600, gate._NOT_EXECUTABLE)])
def test_what_cannot_be_run_is_named_and_has_the_exit_code_of_a_shell(tmp_path, mode, code):
    path = tmp_path / "program"
    if mode is not None:
        path.touch(mode)
    with gated(str(path)) as (process, opens):
        opens.write(b".")
        _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == code
    assert said.startswith(f"pathways-jupyter: {path} cannot be run: ")
