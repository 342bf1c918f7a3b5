"""The keeper of a run on a host: a detached process that starts the command, keeps its output, and ends all of it.

It is a process of its own so that a dropped connection ends nothing: the client comes back and continues to read. The
directory of a run is created exactly once, so that asking twice to start it starts it once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time

from pathways_jupyter.multihost.remote import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OUTPUT, EXIT, LOCK, CLIENT = "output", "exit.json", "lock", "client"

_READ_BYTES = 256 * 1024
_TICK_SECONDS = 1.0
_DRAIN_SECONDS = 2.0
_SET_CHILD_SUBREAPER = 36
_DROPPED = b"\n[pathways: the output is longer than %d MiB on this host; the rest is dropped]\n"


def start(directory: str, spec: dict[str, Any]) -> bool:
    """Start the run that `spec` describes; return False, and do nothing, if it has been started before.

    Args:
      spec: ``run``, ``command`` (for a shell), ``cwd``, ``env``, ``grace`` (seconds between SIGTERM and SIGKILL),
        ``lease`` (seconds that the run outlives its client) and ``limit`` (bytes of output).

    Raises:
      OSError: The command cannot be started.
    """
    os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        return False
    open(f"{directory}/{CLIENT}", "w").close()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # Two forks, so that init reaps the keeper and not this process, which ends before it.
        try:
            os.setsid()
            if os.fork() == 0:
                os.close(reading)
                _become_keeper(directory, spec, writing)
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as answer:
        problem = answer.read().decode()
    if problem:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
        raise OSError(problem)
    return True


def is_running(directory: str) -> bool:
    """Return whether the run's keeper is alive: it holds the lock, which the system releases however it ends."""
    try:
        file = os.open(f"{directory}/{LOCK}", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def ask_to_stop(directory: str) -> None:
    """Ask the keeper to end the run; without a keeper, end what it left."""
    with contextlib.suppress(OSError, ValueError):
        if is_running(directory):
            with open(f"{directory}/{LOCK}") as lock:
                os.kill(int(lock.read()), signal.SIGTERM)
            return
    if os.path.isdir(directory) and not os.path.exists(f"{directory}/{EXIT}"):
        processes.end(lambda: processes.of_run(os.path.basename(directory)), 0.0)
        _write_exit(directory, -signal.SIGKILL, "lost", None)


def outcome(directory: str) -> dict[str, Any] | None:
    """Return the run's exit code, the reason of its end, and how long it ran, if known; None while it runs."""
    # The lock first: the keeper writes the result before it releases the lock.
    running = is_running(directory)
    try:
        with open(f"{directory}/{EXIT}") as file:
            result = json.load(file)
    except (OSError, ValueError):
        return None if running else {"code": -signal.SIGKILL, "why": "lost"}
    return result if isinstance(result, dict) else None


def _become_keeper(directory: str, spec: dict[str, Any], ready: int) -> None:
    """Run as the keeper until the run has ended; `ready` is closed once the command runs, or gets the reason."""
    try:
        lock = os.open(f"{directory}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, str(os.getpid()).encode())
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            # Else the connection would stay open as long as the run.
            os.dup2(nothing, standard)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        import ctypes

        # Descendants that lose their parent become children of the keeper, so that none escapes it.
        if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError("the system does not support PR_SET_CHILD_SUBREAPER")
        keeper = _Keeper(directory, spec)
    except BaseException as error:
        os.write(ready, str(error).encode() or b"unknown")
        return
    os.close(ready)
    keeper.run()


class _Keeper:
    def __init__(self, directory: str, spec: dict[str, Any]) -> None:
        self._directory, self._spec = directory, spec
        self._left = int(spec["limit"])
        self._requested = False
        self._why = "exited"
        self._code: int | None = None
        self._began = self._touched_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._touched = 0
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        # Signals only wake the loop below, which then looks at what has changed.
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_requested", True))
        self._output = os.open(f"{directory}/{OUTPUT}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pipe: int | None
        self._pipe, self._command = _started(spec)

    def run(self) -> None:
        try:
            while self._code is None and self._why == "exited":
                watched = [self._wake] + ([self._pipe] if self._pipe is not None else [])
                readable, _, _ = select.select(watched, [], [], _TICK_SECONDS)
                self._look(readable)
            processes.end(self._alive, float(self._spec["grace"]), self._look)
            until = time.monotonic() + _DRAIN_SECONDS
            # A process that could not be ended may hold the pipe open, so not until its end.
            while self._pipe is not None and self._read() and time.monotonic() < until:
                pass
        finally:
            seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - self._began
            _write_exit(self._directory, -signal.SIGKILL if self._code is None else self._code, self._why, seconds)

    def _look(self, readable: list[int] | None = None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        if self._pipe is not None and (readable is None or self._pipe in readable):
            self._read()
        self._reap()
        if self._code is not None or self._why != "exited":
            # It ended by itself before it was asked to, or was ended already.
            return
        if self._requested:
            self._why = "stopped"
        # By the boot clock, and not by the time in the file: the host's other clock may be set while the run goes on.
        now, lease = time.clock_gettime(time.CLOCK_BOOTTIME), float(self._spec["lease"])
        with contextlib.suppress(OSError):
            touched = os.stat(f"{self._directory}/{CLIENT}").st_mtime_ns
            if touched != self._touched:
                self._touched, self._touched_at = touched, now
        if now - self._touched_at > lease:
            self._why = "abandoned"

    def _alive(self) -> set[int]:
        # All that the command has started descends from the keeper, because it adopts what loses its parent. So nothing
        # is left when it has no child, which needs no look at all processes of the host.
        while self._reap():
            # Empty if the last one ends, or loses its parent, during the look.
            if left := processes.descendants():
                return left
        return set()

    def _reap(self) -> bool:
        """Reap what has ended; return whether there are children left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._command:
                    self._code = os.waitstatus_to_exitcode(status)
        return False

    def _read(self) -> bool:
        """Read once from the command; return whether there was something."""
        assert self._pipe is not None
        try:
            data = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._pipe = None
            return False
        left, self._left = self._left, self._left - len(data)
        try:
            os.write(self._output, data[: max(left, 0)])
            if left >= 0 > self._left:
                os.write(self._output, _DROPPED % (int(self._spec["limit"]) >> 20))
        except OSError:
            # The disk is full. The command must not hang on its output, so it goes on without.
            pass
        return True


def _started(spec: dict[str, Any]) -> tuple[int, int]:
    """Start the command in a session of its own; return the pipe with its output, and its process."""
    shells = (f"{folder}/bash" for folder in os.environ.get("PATH", os.defpath).split(":"))
    shell = next((path for path in shells if os.access(path, os.X_OK)), "/bin/sh")
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", **spec["env"], processes.MARK: spec["run"]}
    os.chdir(spec["cwd"])
    reading, writing = os.pipe()
    # Not the module subprocess, whose import takes longer than all of this.
    command = os.posix_spawn(
        shell,
        [shell, "-c", spec["command"]],
        environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, writing, 2)],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )
    os.close(writing)
    os.set_blocking(reading, False)
    return reading, command


def _write_exit(directory: str, code: int, why: str, seconds: float | None) -> None:
    scratch = f"{directory}/{EXIT}.partial"
    try:
        with open(scratch, "w") as file:
            file.write(json.dumps({"code": code, "why": why, "seconds": seconds}))
        os.replace(scratch, f"{directory}/{EXIT}")
    except OSError:
        sys.exit(1)
