"""The processes of one test run: marked by a variable of their environment, counted at the run's end, and ended.

Many are detached on purpose: embedded clusters with their pods, supervisors, kernels. So nothing ends them when their
test forgets to, or is interrupted. Run as a program, this waits for the end of the run, and ends what is left then.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import psutil

MARK = "PJ_TEST_RUN"
GRACE_SECONDS = 30.0
"""Longest time in which what ends with the last test, such as a supervisor, has to end."""
_LOOK_SECONDS = 0.2


def begin() -> subprocess.Popen[bytes]:
    """Mark this process's children from now on, and start the program that ends them once this process has ended."""
    os.environ[MARK] = f"{os.getpid()}-{time.time_ns()}"
    environ = {name: value for name, value in os.environ.items() if name != MARK}
    return subprocess.Popen(
        [sys.executable, "-P", __file__, os.environ[MARK]],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # An Interrupt of the run must not end it.
        start_new_session=True,
    )


def left(run: str) -> list[psutil.Process]:
    """The processes of a run, but for this one and its children, that still run after a while."""
    deadline = time.monotonic() + GRACE_SECONDS
    while (found := _of(run)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return found


def end(processes: list[psutil.Process]) -> None:
    """Kill processes."""
    for each in processes:
        with contextlib.suppress(psutil.Error):
            each.kill()


def described(process: psutil.Process) -> str:
    """Return what to say of a process, with the test that has started it, or its environment."""
    with contextlib.suppress(psutil.Error):
        test = process.environ().get("PYTEST_CURRENT_TEST", "")
        return f"{process.pid} {' '.join(process.cmdline())[:200]} (in {process.cwd()}, of {test or 'no test'})"
    return str(process.pid)


def _of(run: str) -> list[psutil.Process]:
    own = {os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))}
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == run and process.status() != psutil.STATUS_ZOMBIE:
                # A pod's program has an environment of its own, and a parent that is marked.
                found |= {each.pid: each for each in (process, *process.children(recursive=True))}
    return [each for pid, each in found.items() if pid not in own]


if __name__ == "__main__":
    # Ends with the process that holds the other end, in whatever way that ends.
    sys.stdin.read()
    while remaining := _of(sys.argv[1]):
        end(remaining)
        time.sleep(_LOOK_SECONDS)
