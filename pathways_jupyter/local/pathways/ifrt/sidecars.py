"""A proxy's connections to the sidecars of its slices' hosts, which run colocated Python.

A sidecar that is lost fails the calls that run there, and the next call connects again. That its slice is down is the
error of all calls until the slice is up again, as it is of everything else on the slice.
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

from pathways_jupyter.local.pathways.ifrt.devices import Devices, slice_down
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
        self._slices = {each.host: each.slice_index for each in devices.all}
        self._locks = {host: threading.Lock() for host in self._slices}
        self.function_numbers = itertools.count(1)
        """Sidecars know functions by their number."""

    def set_paths(self, paths: Mapping[int, str]) -> None:
        """Set where the sidecar of each host listens whose slice is up; calls on hosts that have moved or gone fail."""
        self._paths = dict(paths)
        for number, host in list(self.connected.items()):
            if self._paths.get(number) != host.path:
                host.close(self._slice_down(number))

    def host(self, number: int) -> SidecarClient:
        """Return the connection to a host's sidecar, made if there is none that works; blocks while it starts.

        Raises:
          IfrtStatusError: DATA_LOSS while its slice is down, UNAVAILABLE, or FAILED_PRECONDITION where there are no
            sidecars.
        """
        if not self._present:
            raise IfrtStatusError(Code.FAILED_PRECONDITION, "the hosts have no colocated Python sidecars")
        deadline = time.monotonic() + _CONNECT_SECONDS
        # Two calls must not make two connections, which would be two processes over there.
        with self._locks[number]:
            while True:
                path = self._paths.get(number)
                if path is None:
                    raise self._slice_down(number)
                client = self.connected.get(number)
                if client is not None and client.ended is None and client.path == path:
                    return client
                try:
                    self.connected[number] = SidecarClient(number, path, self._devices)
                except (OSError, WireError) as error:
                    # One that has accepted the connection and ended would do so again.
                    if isinstance(error, WireError) or time.monotonic() > deadline:
                        raise IfrtStatusError(
                            Code.UNAVAILABLE, f"the sidecar of host {number} cannot be reached: {error}"
                        ) from error
                    # A socket file cannot be waited for in any way that works everywhere.
                    time.sleep(_RETRY_SECONDS)

    def _slice_down(self, number: int) -> IfrtStatusError:
        return slice_down([self._slices[number]])


class SidecarClient:
    """The connection to one sidecar.

    Raises:
      OSError, WireError: There is none.
    """

    def __init__(self, number: int, path: str, devices: Devices) -> None:
        self.number = number
        self.path = path
        self.loaded: set[int] = set()
        # With the code of an error, by the number of the request.
        self._answers: dict[int, tuple[futures.Future[HostAnswer], Code]] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self.ended: IfrtStatusError | None = None
        """The reason why the connection was closed; None while requests can be sent."""
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(path)
            self._connection = SidecarConnection(peer)
            beside = {str(each.id): each.host for each in devices.all if not each.is_chip}
            self._connection.send({"host": number, "devices": beside})
            self._connection.receive()
        except BaseException:
            peer.close()
            raise
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
            self._end(str(error))
        return answer

    def notify(self, op: str, **fields: Any) -> None:
        """Send something that has no answer."""
        with contextlib.suppress(WireError):
            self._connection.send({"op": op, **fields})

    def close(self, error: IfrtStatusError) -> None:
        """End the connection; `error` is that of all calls that wait for an answer, unless it has ended already."""
        with self._lock:
            self.ended = self.ended or error
            waiting = list(self._answers.values())
            self._answers.clear()
        self._connection.close()
        for answer, _ in waiting:
            answer.set_exception(self.ended.bare())

    def _end(self, reason: str) -> None:
        self.close(IfrtStatusError(Code.UNAVAILABLE, f"the sidecar of host {self.number} is gone: {reason}"))

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
            self._end("its process ended")
