"""``pathways-jupyter run``: an unmodified program has TPUs of its own, and nothing is left however it ends."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from waits import have_ended, wait_until

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.kube import objects
from pathways_jupyter.session import clusters, registry

pytestmark = pytest.mark.timeout(300)

DEADLINE = 90.0
LEAK_SECONDS = 60.0
"""However a program ends, nothing of it is left after this."""
LONGEST_LIFE_SECONDS = 4.0

PLAIN = """
import jax, jax.numpy as jnp, sys
print(jax.devices()[0].platform, len(jax.devices()), float(jnp.arange(8.0).sum()), sys.argv[1:])
sys.exit(7)
"""
INITIALIZED = """
import pathwaysutils
pathwaysutils.initialize()
import jax, jax.numpy as jnp
print(jax.devices()[0].platform, float(jnp.arange(8.0).sum()))
"""
INITIALIZED_LATE = """
import jax, jax.numpy as jnp
x = jnp.arange(8.0)
import pathwaysutils
pathwaysutils.initialize()
print(jax.devices()[0].platform, float(x.sum()))
"""
CONNECTING = """
import pathways_jupyter, sys
with pathways_jupyter.connect(kubeconfig=sys.argv[1], tpu="tpuv6e:2x2=1"):
    import jax, jax.numpy as jnp
    print("its own", len(jax.devices()), float(jnp.arange(8.0).sum()))
print("given", len(jax.devices()), jax.devices()[0].platform, float(jnp.arange(8.0).sum()))
"""
FORKING = """
import os, sys

def work(rank):
    import jax, jax.numpy as jnp
    return int(jnp.full(4, rank + 1).sum()) if jax.devices()[0].platform == "tpu" else 0

children = []
for rank in range(2):
    pid = os.fork()
    if not pid:
        os._exit(work(rank))
    children.append(pid)
print(sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""
SAVES_ON_SIGTERM = """
import signal, sys, time
import jax, jax.numpy as jnp
x = jnp.arange(8.0)

def save(number, frame):
    print("saved", float(x.sum()), flush=True)
    sys.exit(3)

signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""
SHELL = """
import fcntl, os, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
"""
COMPUTES = """
import jax, jax.numpy as jnp
x = jnp.arange(8.0)
print("ready", float(x.sum()), flush=True)
while True:
    x = (x + 1).block_until_ready()
"""


class Run:
    """``pathways-jupyter run`` as a process, its program and what both have said."""

    def __init__(self, cluster: Path, script: Path, *options: str, words: tuple[str, ...] = ()) -> None:
        self.script = script
        # A session that was killed in the test before may hold its slices for another moment.
        settings = ["--kubeconfig", str(cluster), "--tpu", "tpuv6e:2x2=2", "--wait", str(DEADLINE)]
        arguments = ["run", *settings, *options, "--"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pathways_jupyter", *arguments, sys.executable, str(script), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=script.parent,
        )
        self.out, self.errors = "", ""

    def end(self) -> int:
        """Wait for its end; its exit code."""
        out, errors = self.process.communicate(timeout=DEADLINE)
        self.out, self.errors = self.out + out, self.errors + errors
        return self.process.returncode

    def until(self, text: str) -> None:
        """Read its standard output until it says `text`."""
        while text not in self.out:
            line = self.process.stdout.readline()
            assert line, self.errors + self.process.stderr.read()
            self.out += line

    @property
    def session(self) -> str:
        """The session's id, once it is over."""
        return re.search(r"session (\w+)\.", self.errors)[1]

    def processes(self) -> list[psutil.Process]:
        """The processes of its program, and those that are about to become it."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                named = str(self.script) in process.cmdline() and process.pid != self.process.pid
                if named and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


@pytest.fixture
def run(cluster, tmp_path) -> Iterator[Callable[..., Run]]:
    """Run a script; what still runs at the test's end is killed."""
    runs: list[Run] = []

    def start(code: str, *options: str, words: tuple[str, ...] = ()) -> Run:
        script = tmp_path / f"train-{uuid.uuid4().hex[:8]}.py"
        script.write_text(textwrap.dedent(code))
        runs.append(Run(cluster.kubeconfig, script, *options, words=words))
        return runs[-1]

    yield start
    for each in runs:
        for process in [*each.processes(), each.process]:
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                process.kill()
        each.process.communicate()


def test_a_program_that_knows_nothing_of_pathways_runs_on_tpus(run, gone):
    program = run(PLAIN, words=("--steps", "3"))
    assert program.end() == 7, program.errors
    assert program.out == "tpu 8 28.0 ['--steps', '3']\n"
    assert "connected to 2 slices of tpuv6e:2x2 (8 chips)" in program.errors
    assert all(line.startswith("pathways-jupyter: ") for line in program.errors.splitlines()), program.errors
    gone(program.session)


@pytest.mark.thorough
def test_a_program_that_used_no_tpu_is_reported(run):
    program = run("import os; os.environ['JAX_PLATFORMS'] = 'cpu'\nimport jax; print(jax.devices()[0].platform)")
    assert program.end() == 0, program.errors
    assert program.out == "cpu\n"
    assert "pathways-jupyter: The program used no TPU: it never connected to its proxy." in program.errors


@pytest.mark.soak
def test_a_program_may_initialize_pathwaysutils_after_jax_was_used(run):
    program = run(INITIALIZED_LATE, "-q")
    assert program.end() == 0, program.errors
    assert program.out == "tpu 28.0\n"


@pytest.mark.thorough
def test_a_program_that_connects_by_itself_gets_back_what_it_was_given(run, cluster):
    program = run(CONNECTING, "--tpu", "tpuv6e:2x2=1", "-q", words=(str(cluster.kubeconfig),))
    assert program.end() == 0, program.errors
    assert program.out == "its own 4 28.0\ngiven 4 tpu 28.0\n"


@pytest.mark.thorough
def test_children_that_a_parent_forks_share_the_proxy(run):
    program = run(FORKING, "-q")
    assert program.end() == 0, program.errors
    assert program.out == "[4, 8]\n"
    assert "used no TPU" not in program.errors


def test_sigterm_reaches_the_program_while_it_still_has_its_tpus(run, gone):
    program = run(SAVES_ON_SIGTERM)
    program.until("ready")
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 3, program.errors
    assert program.out == "ready\nsaved 28.0\n"
    gone(program.session)


def test_a_signal_that_ends_the_program_is_its_exit_code(run, gone):
    program = run(COMPUTES)
    program.until("ready")
    for process in program.processes():
        process.kill()
    assert program.end() == 128 + signal.SIGKILL
    gone(program.session)


def test_the_exit_code_is_known_where_children_are_not_waited_for(cluster):
    """As under a parent that ignores SIGCHLD."""
    code = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    line = [sys.executable, "-m", "pathways_jupyter", "run", "-q", "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(
        [sys.executable, "-c", code, *line, "--tpu", "tpuv6e:2x2=1", "--", sys.executable, "-c", "raise SystemExit(5)"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (5, "")


def test_a_closed_standard_error_changes_nothing_but_that_nothing_is_said(cluster):
    program = "import sys; print(sys.stderr.fileno()); raise SystemExit(5)"
    line = [sys.executable, "-m", "pathways_jupyter", "run", "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *line, "--tpu", "tpuv6e:2x2=1", "--", sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, "2\n")


def test_what_a_program_leaves_running_in_its_group_is_ended(run):
    program = run("import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()', __file__])", "-q")
    assert program.end() == 0, program.errors
    assert program.processes() == []


@pytest.mark.thorough
def test_nothing_is_left_when_run_itself_is_killed(run, gone):
    program = run(COMPUTES)
    program.until("ready")
    (session,) = [record.id for record in registry.sessions() if str(program.script) in record.program]
    program.process.kill()
    killed = time.monotonic()
    gone(session, since=killed, seconds=LEAK_SECONDS)
    wait_until(lambda: have_ended(program.processes()), LEAK_SECONDS)


@pytest.mark.soak
@pytest.mark.parametrize("attempt", range(20))
def test_nothing_is_left_when_run_is_killed_at_any_of_twenty_moments(attempt, run, gone):
    before = {record.id for record in registry.sessions()}
    program, moment = run(COMPUTES), random.uniform(0, LONGEST_LIFE_SECONDS)
    time.sleep(moment)
    made = {record.id for record in registry.sessions()} - before
    program.process.kill()
    program.process.wait()
    killed = time.monotonic()
    print(f"killed after {moment:.2f} s")
    made |= {record.id for record in registry.sessions()} - before
    for session in made:
        gone(session, since=killed, seconds=LEAK_SECONDS)
    left = program.processes()
    wait_until(lambda: have_ended(left), LEAK_SECONDS)
    assert program.processes() == []


@pytest.mark.thorough
def test_a_signal_while_it_waits_for_slices_cancels_it(run, hold, gone):
    hold(1)
    program = run(PLAIN, "--wait")
    said = ""
    while "holds 1" not in said:
        line = program.process.stderr.readline()
        assert line, said
        said += line
    (session,) = [record.id for record in registry.sessions() if str(program.script) in record.program]
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 128 + signal.SIGTERM, program.errors
    assert program.out == ""
    assert "SIGTERM came before the program was started" in program.errors
    gone(session)


@pytest.mark.thorough
def test_taken_slices_are_one_error_and_the_program_is_not_run(run, hold):
    hold(1)
    program = run(PLAIN, "--wait", "0")
    assert program.end() == 1
    assert program.out == ""
    assert "Error: 1 of 2 slices of pathways-cluster are free, and 2 are wanted" in program.errors


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("no-such-program", "Error: There is no program 'no-such-program'."),
        ("./train.py", "Error: The file './train.py' cannot be executed.\n  Make it executable, chmod +x ./train.py"),
        ("train.py", "Error: There is no program 'train.py'."),
    ],
)
def test_a_program_that_cannot_be_run_makes_no_proxy(program, said, cluster, tmp_path):
    (tmp_path / "train.py").touch(mode=0o644)
    arguments = ["run", "--kubeconfig", str(cluster.kubeconfig), "--tpu", "tpuv6e:2x2=1", "--", program]
    done = subprocess.run(
        [sys.executable, "-m", "pathways_jupyter", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(said)


@pytest.mark.thorough
def test_a_lost_proxy_is_reported_while_the_program_runs(run, cluster):
    program = run(SAVES_ON_SIGTERM)
    program.until("ready")
    (record,) = [record for record in registry.sessions() if str(program.script) in record.program]
    where = ConnectConfig(kubeconfig=str(cluster.kubeconfig))
    clusters.ask(
        where, lambda client, namespace: objects.delete(client, objects.PODS, record.pod, namespace=record.namespace)
    )
    said = ""
    while "The session is lost" not in said:
        line = program.process.stderr.readline()
        assert line, said
        said += line
    assert "The program's next use of a TPU fails." in said
    program.process.kill()


def test_a_program_may_initialize_pathwaysutils_and_a_port_instead_of_a_socket_comes_with_a_warning(run):
    program = run("import os; print(os.environ['JAX_BACKEND_TARGET'])" + INITIALIZED, "--tcp", "-q")
    assert program.end() == 0, program.errors
    assert re.fullmatch(r"grpc://127\.0\.0\.1:\d+\ntpu 28\.0\n", program.out)
    assert "other users of this machine can use these TPUs too" in program.errors


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell with job control")
def test_a_shell_stops_and_continues_it_as_one_job(cluster, tmp_path):
    code = "import sys; print('rea' 'dy', flush=True); [print('got', line, flush=True) for line in sys.stdin]"
    line = f"{sys.executable} -m pathways_jupyter run -q --kubeconfig {cluster.kubeconfig} --tpu tpuv6e:2x2=1"
    terminal, inner = pty.openpty()
    shell = subprocess.Popen([sys.executable, "-c", SHELL], stdin=inner, stdout=inner, stderr=inner, cwd=tmp_path)
    os.close(inner)

    def say(keys: str, answer: str) -> None:
        os.write(terminal, keys.encode())
        output, deadline = "", time.monotonic() + DEADLINE
        while answer not in output:
            assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], output
            output += os.read(terminal, 4096).decode(errors="replace")

    try:
        say(f'{line} -- {sys.executable} -c "{code}"\n', "ready")
        say("one\n", "got one")
        say("\x1a", "Stopped")
        say("echo the shell $((1 + 1))\n", "the shell 2")
        # What is typed before the program runs again waits in the terminal.
        say("fg\ntwo\n", "got two")
        say("\x03", "KeyboardInterrupt")
        say("echo code $?\n", "code 130")
    finally:
        os.close(terminal)
        shell.wait(DEADLINE)
