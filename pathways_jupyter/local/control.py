"""The cluster's daemon from outside: its start, and its control socket.

The request is one JSON line, the answer JSON lines. A client answers a growth with an empty line; what was added goes
again if the connection closes before that. Only the cluster's owner can open the socket: it is in a 0700 directory. The
connection that asked for a stop closes when the daemon's process has ended, which is how the client knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from pathways_jupyter.base import interrupts, json_lines
from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.base.packages import require
from pathways_jupyter.base.text import reason
from pathways_jupyter.local.directory import ClusterDirectory
from pathways_jupyter.local.settings import ClusterSettings

_PACKAGES = ("cryptography", "gcp_storage_emulator", "google.protobuf", "ml_dtypes")
"""Packages that the daemon imports, and pods of Pathways, beyond what every notebook needs."""
START_SECONDS = 60.0
"""Longest wait for the daemon to serve, and for an answer that waits for nothing."""


class DaemonRequest(StrEnum):
    """Requests that the daemon serves."""

    STATUS = "status"
    WAIT = "wait"
    """Answered once every service is ready."""
    GROW = "grow"
    """Have at least so many slices per instance type: ``instances``, and ``spare``.

    ``free``: not counting those that sessions hold. ``unbounded``: also more hosts than this machine runs well; without
    it nothing is changed, and the answer has their number as ``hosts``. Else it has the slices ``before``.
    """
    SHRINK = "shrink"
    """Have the slices ``before`` again instead of those ``after`` a growth, unless they are in use; ``shrunk``."""
    RESTART_API = "restart-api"
    STOP = "stop"


def start(directory: ClusterDirectory, settings: ClusterSettings) -> None:
    """Start the daemon and wait until it serves the API.

    Raises:
      ConfigError: A package that only the embedded cluster needs is not installed; nothing was changed.
      LocalClusterError: The daemon does not start.
    """
    require("local", "The embedded cluster", *_PACKAGES)
    alive = directory.make()
    ready, theirs = os.pipe()
    try:
        with (directory.path / "daemon.err").open("wb") as errors:
            starter = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "pathways_jupyter.local.daemon",
                    directory.name,
                    str(theirs),
                    str(alive),
                    json.dumps(asdict(settings)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(theirs, alive),
                start_new_session=True,
            )
    except BaseException:
        os.close(ready)
        raise
    finally:
        os.close(theirs)
        os.close(alive)
    # Also closed when the caller is interrupted; the daemon then fails to report its start, and ends.
    with open(ready, "rb") as pipe:
        # `starter` is only the daemon's parent, which ends at once: the daemon double-forks, so that the caller need
        # not reap it.
        starter.wait()
        # Not select(), which knows no descriptor above 1,023: Jupyter's servers and kernels may have more.
        ready_to_read = select.poll()
        ready_to_read.register(pipe, select.POLLIN)
        answered = ready_to_read.poll(START_SECONDS * 1000)
        line = pipe.readline() if answered else b""
    answer = json_lines.decode(line) if line else {}
    if "port" in answer:
        return
    if not answered:
        answer["error"] = f"The embedded cluster did not start within {START_SECONDS:g} s."
        directory.kill()
    directory.until_dead()
    log = directory.path / "daemon.err"
    why = reason(log.read_bytes() if log.exists() else b"", "its daemon ended")
    directory.clear()
    raise LocalClusterError(
        answer.get("error") or f"The embedded cluster did not start: {why}.",
        hint=answer.get("hint", ""),
    )


def ask(
    path: str | Path,
    order: DaemonRequest,
    *,
    timeout: float | None = None,
    own: Callable[[dict[str, Any]], None] | None = None,
    **details: object,
) -> dict[str, Any]:
    """Send an order and wait for its answer.

    Args:
      timeout: Seconds to wait; None for ever.
      own: Called with the answer, not to be interrupted: from then on the caller owns what has grown.
      details: What else the order says.

    Raises:
      LocalClusterError: The daemon is gone, or answered with an error.
      TimeoutError: It does not answer in time.
    """
    # Not closed by the garbage collector, which drops an Interrupt.
    with contextlib.closing(_exchange(path, order, timeout, details)) as answers:
        for answer, connection in answers:
            if message := answer.get("error"):
                raise LocalClusterError(message, hint=answer.get("hint", ""))
            if own is not None:
                with interrupts.defer_sigint():
                    own(answer)
                    connection.sendall(b"\n")
            return answer
    raise LocalClusterError("The embedded cluster ended.", hint="The reason is in its daemon.log.")


def stop(path: str | Path, *, timeout: float | None = None) -> None:
    """Ask the daemon to stop, and wait until its process has ended.

    Raises:
      TimeoutError: It does not end in time.
    """
    for _ in _exchange(path, DaemonRequest.STOP, timeout, {}):
        pass


def _exchange(
    path: str | Path, order: DaemonRequest, timeout: float | None, details: Mapping[str, object]
) -> Generator[tuple[dict[str, Any], socket.socket], None, None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
            connection.sendall(json_lines.encode({"order": order, **details}))
            with connection.makefile("rb") as answers:
                for line in answers:
                    yield json_lines.decode(line), connection
        except (ConnectionError, FileNotFoundError):
            return
