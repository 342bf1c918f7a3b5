"""The cluster's control socket: status, waiting until it is ready, growing, restarting the API, and stopping.

The request is one JSON line, the answer JSON lines. Only the cluster's owner can open the socket: it is in a 0700
directory. The connection that asked for a stop closes when the daemon's process has ended, which is how the client
knows.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pathways_jupyter.base.errors import LocalClusterError


class Order(StrEnum):
    """Requests that the daemon serves."""

    STATUS = "status"
    WAIT = "wait"
    """Answered once every service is ready."""
    GROW = "grow"
    """Have at least so many slices per instance type: ``instances``, and ``spare``."""
    RESTART_API = "restart-api"
    STOP = "stop"


def ask(path: str | Path, order: Order, *, timeout: float | None = None, **details: object) -> dict[str, Any]:
    """Send an order and wait for its answer.

    Args:
      timeout: Seconds to wait; None for ever.
      details: What else the order says.

    Raises:
      LocalClusterError: The daemon is gone, or answered with an error.
      TimeoutError: It does not answer in time.
    """
    for answer in _exchange(path, order, timeout, details):
        if message := answer.get("error"):
            raise LocalClusterError(message, hint=answer.get("hint", ""))
        return answer
    raise LocalClusterError("The embedded cluster ended.", hint="The reason is in its daemon.log.")


def stop(path: str | Path, *, timeout: float | None = None) -> None:
    """Ask the daemon to stop, and wait until its process has ended.

    Raises:
      TimeoutError: It does not end in time.
    """
    for _ in _exchange(path, Order.STOP, timeout, {}):
        pass


def _exchange(
    path: str | Path, order: Order, timeout: float | None, details: Mapping[str, object]
) -> Iterator[dict[str, Any]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps({"order": order, **details}).encode() + b"\n")
            with connection.makefile("rb") as answers:
                for line in answers:
                    yield json.loads(line)
        except (ConnectionError, FileNotFoundError):
            return
