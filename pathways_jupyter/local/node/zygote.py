"""The fork server: a warm process without threads that starts every process of the cluster.

Importing JAX takes over a second; a fork of a process that has imported it takes some ten milliseconds. So a pod's
program runs in a fork of this process. Commands (and ``kubectl exec``) are forked likewise and then call exec.

It also supervises the pods. As the parent of them all, it alone can signal and reap them without a race over reused
process ids; and when its request socket closes, because the daemon has ended, it kills them all.

Requests arrive as JSON lines with file descriptors attached (:class:`SpawnRequest`); reports leave as JSON lines:
``{"ready": threads}``, ``{"id": ..., "pid": ...}``, ``{"id": ..., "code": ...}`` (128 + signal when killed by one).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathways_jupyter.base import json_lines
from pathways_jupyter.local.node import orphans

CONTAINER_VARIABLE = "PATHWAYS_LOCAL_CONTAINER"
"""Names the container that a process belongs to, also for one that left its process group."""
MAIN_PID_VARIABLE = "PATHWAYS_LOCAL_MAIN_PID"
"""The container's main process, which is pid 1 in a real container."""

_MAX_DESCRIPTORS = 64
_FORWARDED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


@dataclass(frozen=True)
class SpawnRequest:
    """One process to start.

    Attributes:
      argv: The command; for a program, its arguments.
      program: :func:`function_name` of the function to call in the fork, or empty to replace the fork by the command.
      container: Container it belongs to. When the container's main process ends, the others are killed.
      main: Whether this is that main process.
      name: Shown by ``ps``.
      tty: Standard streams are one terminal, which becomes the controlling one.
      id: Names the process in signals and reports; set by the spawner.
    """

    argv: list[str]
    environment: Mapping[str, str]
    directory: str
    container: str
    program: str = ""
    main: bool = True
    name: str = ""
    tty: bool = False
    id: str = ""


def function_name(function: Callable[..., object]) -> str:
    """Name a function for another process, which imports it; only a function of a module has such a name."""
    return f"{function.__module__}:{function.__qualname__}"


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    resolved: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return resolved


def _signal(pid: int, number: int, *, group: bool = True) -> None:
    """Signal a child or its group; the id cannot have been reused, since the child has not been reaped."""
    try:
        (os.killpg if group else os.kill)(pid, number)
    except ProcessLookupError:
        # Just forked: it has no group of its own yet.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _has(mark: bytes, pid: int) -> bool:
    """Return whether `mark` is in the environment of a process, as in that of a daemon that left its group."""
    # OSError: it has ended, or its environment cannot be read.
    with contextlib.suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    return False


@dataclass
class _Server:
    requests: socket.socket
    reports: int
    life: int
    children: dict[int, SpawnRequest] = field(default_factory=dict)
    _buffer: bytes = b""
    _descriptors: list[int] = field(default_factory=list)

    def serve(self) -> tuple[SpawnRequest, list[int]] | None:
        """Serve requests. Returns None once the daemon is gone; in a fork, returns what the fork is to run."""
        wake_read, wake_write = os.pipe()
        for descriptor in (wake_read, wake_write):
            os.set_blocking(descriptor, False)
        # SIGCHLD has to interrupt the select below; the pipe makes it an event like any other.
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The number of threads goes along, because a fork of a process that has several may hang.
        self._report(ready=orphans.threads())
        selector = selectors.DefaultSelector()
        selector.register(self.requests, selectors.EVENT_READ)
        selector.register(wake_read, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                    self._reap()
                    continue
                data, descriptors, _, _ = socket.recv_fds(self.requests, 65536, _MAX_DESCRIPTORS)
                if not data:
                    return None
                self._buffer += data
                self._descriptors += descriptors
                if (forked := self._answer()) is not None:
                    selector.close()
                    os.close(wake_read)
                    os.close(wake_write)
                    return forked

    def end_all(self) -> None:
        """Kill every process that was started here, and what they started."""
        for pid in self.children:
            _signal(pid, signal.SIGKILL)
        orphans.kill_children()

    def _answer(self) -> tuple[SpawnRequest, list[int]] | None:
        while b"\n" in self._buffer:
            line, self._buffer = self._buffer.split(b"\n", 1)
            message = json_lines.decode(line)
            if "signal" in message:
                for pid, child in self.children.items():
                    if child.id == message["id"]:
                        _signal(pid, message["signal"], group=message["group"])
                continue
            count = message.pop("descriptors")
            # They arrive in the order of the requests that count them, at the latest with the end of the line.
            descriptors, self._descriptors = self._descriptors[:count], self._descriptors[count:]
            request = SpawnRequest(**message)
            # A signal that follows at once must wait until the fork has restored the default handlers.
            signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
            pid = os.fork()
            if pid == 0:
                return request, descriptors
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
            self.children[pid] = request
            for descriptor in descriptors:
                os.close(descriptor)
            # Always before its end is reported: this loop reaps it, too.
            self._report(id=request.id, pid=pid)
        return None

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                self._ended(*ended)

    def _ended(self, pid: int, status: int) -> None:
        child = self.children.pop(pid, None)
        # An orphan that was adopted here: it has no request, and no process waits for its code.
        if child is None:
            return
        # Before the report, on which the container may be started again.
        if child.main:
            self._end_container(pid, child.container)
        code = os.waitstatus_to_exitcode(status)
        self._report(id=child.id, code=code if code >= 0 else 128 - code)

    def _end_container(self, main: int, container: str) -> None:
        """Kill what is left of a container, and reap it."""
        for group in (main, *(pid for pid, child in self.children.copy().items() if child.container == container)):
            _signal(group, signal.SIGKILL)
            # What they have started is adopted by this process only when they have ended.
            with contextlib.suppress(ChildProcessError):
                while True:
                    self._ended(*os.waitpid(-group, 0))
        mark = f"{CONTAINER_VARIABLE}={container}\0".encode()
        while strays := [pid for pid in orphans.children() if pid not in self.children and _has(mark, pid)]:
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def _report(self, **report: Any) -> None:
        try:
            os.write(self.reports, json_lines.encode(report))
        except BrokenPipeError:
            # The daemon is gone.
            self.end_all()
            os._exit(0)


def main(argv: list[str]) -> None:
    """Run ``zygote.py REQUESTS REPORTS LIFE [PRELOAD]``: inherited descriptors, then a function to call beforehand.

    LIFE is a pipe that the daemon never writes to: its end of file shows a program that the daemon is gone, on systems
    without a parent-death signal. (Linux has one, and so needs no thread that waits on the pipe, which would disturb
    programs that fork.)
    """
    requests, reports, life = (int(each) for each in argv[:3])
    for number in _FORWARDED:
        signal.signal(number, lambda *_: None)
    orphans.adopt_orphans()
    orphans.set_name("pathways-zygote")
    # While importing, this process reads no requests, so it has to die with the daemon. Later it must outlive the
    # daemon, to end the processes that it has started.
    orphans.die_with(os.getppid())
    for each in argv[3:]:
        _function(each)()
    orphans.survive_parent()
    # A collection in a fork would touch, and so copy, every page that it shares with this process.
    gc.collect()
    gc.freeze()
    server = _Server(socket.socket(fileno=requests), reports, life)
    parent = os.getpid()
    forked = server.serve()
    if forked is None:
        server.end_all()
        return
    request, descriptors = forked
    try:
        _become(request, descriptors, life=life, parent=parent)
    except OSError as error:
        print(f"{request.argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(126)
    except BaseException:
        traceback.print_exc()
        os._exit(126)


def _become(request: SpawnRequest, descriptors: list[int], *, life: int, parent: int) -> None:
    """Turn this fork into the requested process; does not return."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, *_FORWARDED):
        signal.signal(number, signal.SIG_DFL)
    if request.program:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        # Python ignores SIGPIPE, and so do its programs; other commands expect it to end them.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if request.tty:
        os.login_tty(descriptors[0])
    else:
        os.setsid()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
    # What has come since the fork is delivered here, to the handlers that it is meant for.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    watched = orphans.die_with(parent)
    orphans.set_name(request.name or os.path.basename(request.argv[0]))
    first_closed = 3
    if request.program and not watched:
        os.dup2(life, first_closed, inheritable=False)
        first_closed += 1
    # Above all this process's copies of the fork server's connections: while one is open, the daemon does not see that
    # the fork server has died.
    os.closerange(first_closed, max(int(each) for each in os.listdir("/dev/fd")) + 1)
    os.chdir(request.directory)
    # Over the variables of the container's spec, which must not hide which container it is.
    environment = dict(request.environment, **{CONTAINER_VARIABLE: request.container})
    if request.main:
        environment[MAIN_PID_VARIABLE] = str(os.getpid())
    if not request.program:
        os.execvpe(request.argv[0], request.argv, environment)
    os.environ.clear()
    os.environ.update(environment)
    if not watched:

        def end_with_daemon() -> None:
            os.read(3, 1)
            os.killpg(0, signal.SIGKILL)

        threading.Thread(target=end_with_daemon, name="life", daemon=True).start()
    os._exit(_run(request))


def _run(request: SpawnRequest) -> int:
    """Call the program's function as the interpreter would: exit code, traceback, flushed streams."""
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.argv = [request.name, *request.argv]
    # Forks would otherwise all draw the same random numbers.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    try:
        code = _function(request.program)(list(request.argv))
    except SystemExit as error:
        code = error.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return int(code or 0) & 0xFF


if __name__ == "__main__":
    main(sys.argv[1:])
