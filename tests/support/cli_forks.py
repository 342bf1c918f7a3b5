"""Runs ``pathways-jupyter`` in forks of a process that has imported it, which is most of the work of a short command.

A fork is a process like any other: its arguments, environment, directory, output and exit code are its own.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

AVAILABLE = sys.platform == "linux"
_starting = threading.Lock()
"""Held by the thread that may have to start the process, of which one is enough."""


def run(
    arguments: tuple[str, ...], *, environ: dict[str, str], directory: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Raises:
      subprocess.TimeoutExpired: It still ran after `timeout` seconds; it is killed.
    """
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
    ):
        connection.settimeout(timeout)
        with _starting:
            address = _server()
        connection.connect(address)
        asked = {"arguments": arguments, "environ": environ, "directory": str(directory)}
        socket.send_fds(connection, [json.dumps(asked).encode()], [out.fileno(), errors.fileno()])
        try:
            answer = connection.recv(100)
        except TimeoutError:
            raise subprocess.TimeoutExpired(arguments, timeout) from None
        assert answer, "The process that forks commands has ended."
        for file in (out, errors):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, int(answer), out.read().decode(), errors.read().decode())


@functools.cache
def _server() -> str:
    """Start the process that forks; it ends with this one. Returns its address."""
    address = f"\0pathways-cli-forks-{os.getpid()}-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(64)
        # The pipe to its standard input is closed with the process that holds this object.
        _server.process = subprocess.Popen(  # type: ignore[attr-defined]
            [sys.executable, "-P", __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
    return address


def _import_commands() -> None:
    from pathways_jupyter import cli
    from pathways_jupyter.kube import claim_package

    claim_package()
    for package in (cli, *map(importlib.import_module, ("pathways_jupyter.kube", "pathways_jupyter.service"))):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    for name in ("actions.cluster", "local.cluster", "render.checks", "render.services", "session.sweep"):
        # Only to save time: one that has another name by now is imported by the command itself.
        with contextlib.suppress(ImportError):
            importlib.import_module(f"pathways_jupyter.{name}")


def _serve(listener: socket.socket) -> bool:
    """Fork for each connection; returns True in a fork, and False at the end."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        connections = [connection for _, connection in running.values()]
        ready, _, _ = select.select([sys.stdin, listener, *running, *connections], [], [])
        if sys.stdin in ready:
            return False
        for descriptor, (pid, connection) in list(running.items()):
            if connection in ready:
                # The one who asked no longer waits.
                os.kill(pid, signal.SIGKILL)
            if connection in ready or descriptor in ready:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(OSError):
                    connection.send(str(code).encode())
                connection.close()
                os.close(descriptor)
                del running[descriptor]
        if listener in ready:
            connection, _ = listener.accept()
            asked, descriptors, *_ = socket.recv_fds(connection, 1 << 20, 2)
            pid = os.fork()
            if not pid:
                listener.close()
                _become(json.loads(asked), descriptors)
                return True
            for each in descriptors:
                os.close(each)
            running[os.pidfd_open(pid)] = (pid, connection)


def _become(asked: dict, descriptors: list[int]) -> None:
    """Be a process that was started to run a command."""
    null = os.open(os.devnull, os.O_RDONLY)
    for ours, standard in zip((null, *descriptors), range(3), strict=True):
        os.dup2(ours, standard)
        os.close(ours)
    os.environ.clear()
    os.environ.update(asked["environ"])
    time.tzset()
    tempfile.tempdir = None
    os.chdir(asked["directory"])
    sys.argv[1:] = asked["arguments"]


if __name__ == "__main__":
    _import_commands()
    # What is there now stays in the pages that all forks share.
    gc.freeze()
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        from pathways_jupyter.cli import main

        main(prog_name="pathways-jupyter")
