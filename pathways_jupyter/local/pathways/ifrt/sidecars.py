"""A proxy's connections to the sidecars of its slices' hosts, which run colocated Python.

A host that is lost fails the calls that run there; the next call connects again.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.statuses import Code, IfrtStatusError
from pathways_jupyter.local.pathways.sidecar_protocol import Header, SidecarConnection, WireError

_log = logging.getLogger(__name__)

_CONNECT_SECONDS = 20.0
"""Longest time for a sidecar's restart until a call is given up."""
_RETRY_SECONDS = 0.1

HostAnswer = tuple[Header, list[memoryview]]


class Sidecars:
    """The sidecars of a proxy's hosts; their sockets become known as slices are placed.

    Args:
      present: Whether there are any.
    """

    def __init__(self, devices: Devices, *, present: bool) -> None:
        self._present = present
        self._devices = devices
        self._paths: dict[int, str] = {}
        self.connected: dict[int, SidecarClient] = {}
        """The connections to sidecars, by host; some may be lost."""
        self._locks = {each.host: threading.Lock() for each in devices.all}
        self.function_numbers = itertools.count(1)
        """Sidecars know functions by their number."""

    def set_paths(self, paths: Mapping[int, str]) -> None:
        """Set where each host's sidecar listens; calls on hosts that have moved or gone fail."""
        self._paths = dict(paths)
        for number, host in list(self.connected.items()):
            if self._paths.get(number) != host.path:
                host.close("its slice went down")

    def host(self, number: int) -> SidecarClient:
        """Return the connection to a host's sidecar, made if there is none that works.

        Raises:
          IfrtStatusError: UNAVAILABLE, or FAILED_PRECONDITION where there are no sidecars.
        """
        if not self._present:
            raise IfrtStatusError(Code.FAILED_PRECONDITION, "the hosts have no colocated Python sidecars")
        # Two calls must not make two connections, which would be two processes over there.
        with self._locks[number]:
            path = self._paths.get(number)
            found = self.connected.get(number)
            if found is not None and not found.ended and found.path == path:
                return found
            if path is None:
                raise IfrtStatusError(Code.UNAVAILABLE, f"host {number} has no sidecar now")
            beside = {str(each.id): each.host for each in self._devices.all if not each.is_chip}
            host = self.connected[number] = SidecarClient(number, path, {"host": number, "devices": beside})
            return host


class SidecarClient:
    """The connection to one sidecar."""

    def __init__(self, number: int, path: str, hello: Header) -> None:
        self.number = number
        self.path = path
        self.loaded: set[int] = set()
        # With the code of an error, by the number of the request.
        self._answers: dict[int, tuple[futures.Future[HostAnswer], Code]] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self.ended = ""
        """The reason why the connection was closed; empty while requests can be sent."""
        try:
            self._connection = SidecarConnection(_connected(path))
            self._connection.send(hello)
            self._connection.receive()
        except (OSError, WireError) as error:
            raise IfrtStatusError(
                Code.UNAVAILABLE, f"the sidecar of host {number} cannot be reached: {error}"
            ) from error
        threading.Thread(target=self._read, name=f"sidecar {number}", daemon=True).start()

    def request(self, op: str, parts: Sequence[memoryview | bytes] = (), **fields: Any) -> futures.Future[HostAnswer]:
        """Send a request; its answer, or what went wrong, is in the future."""
        answer: futures.Future[HostAnswer] = futures.Future()
        number = next(self._ids)
        with self._lock:
            self._answers[number] = answer, Code.INVALID_ARGUMENT if op == "load" else Code.INTERNAL
        try:
            self._connection.send({"op": op, "id": number, **fields}, parts)
        except WireError as error:
            self.close(str(error))
        return answer

    def notify(self, op: str, **fields: Any) -> None:
        """Send something that has no answer."""
        with contextlib.suppress(WireError):
            self._connection.send({"op": op, **fields})

    def close(self, reason: str) -> None:
        """End the connection, and fail all that wait for an answer."""
        with self._lock:
            self.ended = self.ended or reason
            waiting = list(self._answers.values())
            self._answers.clear()
        self._connection.close()
        lost = IfrtStatusError(Code.UNAVAILABLE, f"the sidecar of host {self.number} is gone: {self.ended}")
        for answer, _ in waiting:
            answer.set_exception(lost)

    def _read(self) -> None:
        try:
            while True:
                header, parts = self._connection.receive()
                with self._lock:
                    waiting = self._answers.pop(header["id"], None)
                if waiting is None:
                    continue
                answer, code = waiting
                if "error" in header:
                    text = f"colocated_python on host {self.number}: {header['error']}"
                    answer.set_exception(IfrtStatusError(code, text))
                else:
                    answer.set_result((header, parts))
        except WireError as error:
            _log.warning("Lost the sidecar of host %d: %s", self.number, error)
            self.close("its process ended")


def _connected(path: str) -> socket.socket:
    """Connect to a sidecar, which may be about to start."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(path)
            return peer
        except OSError:
            peer.close()
            if time.monotonic() > deadline:
                raise
        # A socket file cannot be waited for in any way that works everywhere.
        time.sleep(_RETRY_SECONDS)
