"""The sidecar: runs colocated Python on one host, beside the host's worker.

Each proxy that connects gets a process of its own, forked from this one: a proxy has its own numbers for devices and
hosts, and a crash in its user's code must not affect others. The process ends with the connection; when it crashes,
the proxy connects again and gets a fresh one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pathways_jupyter.local.pathways import addresses
from pathways_jupyter.local.pathways.sidecar.sidecar_protocol import SidecarConnection, WireError
from pathways_jupyter.service import names

if TYPE_CHECKING:
    from pathways_jupyter.local.pathways.sidecar.runner import LoadedFunctions

_log = logging.getLogger(__name__)

_ADDRESS_VARIABLE = "GRPC_SERVER_ADDRESS"
_BACKLOG = 16


def main(argv: Sequence[str]) -> int:
    """Run the program until it is stopped."""
    del argv
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s", stream=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        # What user code prints belongs into the log as it is printed, whatever the log is.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.setdefault("MPLBACKEND", "Agg")
    # A pod's home is new, and matplotlib would list the machine's fonts once more, which takes it many seconds.
    fonts = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "matplotlib"
    if fonts.is_dir():
        os.environ.setdefault("MPLCONFIGDIR", str(fonts))
    _, _, port = os.environ.get(_ADDRESS_VARIABLE, f":{names.SIDECAR_PORT}").rpartition(":")
    _serve(addresses.own_socket(int(port)))
    return 0


def _serve(path: Path) -> None:
    # Imported before any fork, so that a new process has it at once. Nothing here may start a thread.
    import jax.experimental.colocated_python  # noqa: F401

    from pathways_jupyter.local.pathways.sidecar.runner import LoadedFunctions

    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        _log.info("Colocated Python sidecar serving on %s", path.name)
        signal.signal(signal.SIGCHLD, _reap)
        # Open for writing in this process alone: the others see the end of it when this one ends.
        life, held = os.pipe()
        while True:
            peer, _ = listener.accept()
            sys.stdout.flush()
            sys.stderr.flush()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(held)
                listener.close()
                threading.Thread(target=_end_with, args=(life,), name="life", daemon=True).start()
                _run(peer, LoadedFunctions)
            peer.close()


def _run(peer: socket.socket, runner: type[LoadedFunctions]) -> None:
    """Serve one proxy, in a process of its own, and end that process."""
    code = 1
    try:
        connection = SidecarConnection(peer)
        hello, _ = connection.receive()
        runner(connection, hello).serve()
    except WireError as error:
        _log.info("A connection ended: %s", error)
        code = 0
    except BaseException:
        _log.exception("Serving a proxy failed")
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit: user code's threads may still run, and nothing waits for them any more.
        os._exit(code)


def _reap(*_: object) -> None:
    """Reap processes that have ended, and log those that failed."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            pid, status = ended
            if code := os.waitstatus_to_exitcode(status):
                by = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
                _log.warning("Process of a proxy %d was ended %s", pid, by)


def _end_with(life: int) -> None:
    """End this process when the one that forked it ends."""
    os.read(life, 1)
    os._exit(0)
