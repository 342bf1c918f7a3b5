"""Runs colocated Python on the sidecars of the slices' hosts: a process, a directory and devices for each host.

A call sends every host its shards of the arguments, and puts the hosts' shards of the results together again. A host
that is lost fails the calls that run there; the next call connects again, and loads its function again.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

from pathways_jupyter.local.pathways.ifrt import dtypes, values
from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.statuses import Code, StatusError
from pathways_jupyter.local.pathways.ifrt.values import Spec
from pathways_jupyter.local.pathways.sidecar import sidecar_protocol
from pathways_jupyter.local.pathways.sidecar.sidecar_protocol import Connection, Header, WireError

_log = logging.getLogger(__name__)

_STRING = "string"
_CONNECT_SECONDS = 20.0
"""How long a sidecar that restarts may take until a call is given up."""
_RETRY_SECONDS = 0.1

Answer = tuple[Header, list[memoryview]]


class Sidecars:
    """The sidecars of a proxy's hosts; their sockets become known as slices are placed.

    Args:
      present: Whether there are any.
    """

    def __init__(self, devices: Devices, *, present: bool) -> None:
        self._present = present
        self._devices = devices
        self._paths: dict[int, str] = {}
        self._hosts: dict[int, _Host] = {}
        self._locks = {each.host: threading.Lock() for each in devices.all}
        self._numbers = itertools.count(1)

    def set_paths(self, paths: Mapping[int, str]) -> None:
        """Says where each host's sidecar listens; calls on hosts that have moved or gone are failed."""
        self._paths = dict(paths)
        for number, host in list(self._hosts.items()):
            if self._paths.get(number) != host.path:
                host.close("its slice went down")

    def load(
        self, code: bytes, inputs: Sequence[Spec], outputs: Sequence[Spec], device_ids: Sequence[int]
    ) -> _Function:
        """Loads a function on every host of these devices.

        Raises:
          StatusError: A host cannot be reached, or cannot unpickle it; the message holds the remote traceback.
        """
        if not self._present:
            raise StatusError(Code.FAILED_PRECONDITION, "the hosts have no colocated Python sidecars")
        function = _Function(self, next(self._numbers), code, inputs, outputs, device_ids, self._devices)
        for host in function.hosts:
            function.load_on(self.host(host))
        return function

    def host(self, number: int) -> _Host:
        """The connection to a host's sidecar, made if there is none that works.

        Raises:
          StatusError: UNAVAILABLE.
        """
        # Two calls must not make two connections, which would be two processes over there.
        with self._locks[number]:
            path = self._paths.get(number)
            found = self._hosts.get(number)
            if found is not None and found.alive and found.path == path:
                return found
            if path is None:
                raise StatusError(Code.UNAVAILABLE, f"host {number} has no sidecar now")
            beside = {str(each.id): each.host for each in self._devices.all if not each.is_chip}
            made = self._hosts[number] = _Host(number, path, {"host": number, "devices": beside})
            return made

    def connected(self, number: int) -> _Host | None:
        """The connection to a host's sidecar, if there is one."""
        return self._hosts.get(number)


class _Host:
    """The connection to one sidecar."""

    def __init__(self, number: int, path: str, hello: Header) -> None:
        self.number = number
        self.path = path
        self.loaded: set[int] = set()
        self._answers: dict[int, futures.Future[Answer]] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._ended = ""
        try:
            self._connection = Connection(_connected(path))
            self._connection.send(hello)
            self._connection.receive()
        except (OSError, WireError) as error:
            raise StatusError(Code.UNAVAILABLE, f"the sidecar of host {number} cannot be reached: {error}") from error
        threading.Thread(target=self._read, name=f"sidecar {number}", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether requests can be sent."""
        return not self._ended

    def request(self, op: str, parts: Sequence[memoryview | bytes] = (), **fields: Any) -> futures.Future[Answer]:
        """Sends a request; its answer, or what went wrong, is in the future."""
        answer: futures.Future[Answer] = futures.Future()
        with self._lock:
            if self._ended:
                answer.set_exception(self._lost())
                return answer
            number = next(self._ids)
            self._answers[number] = answer
        try:
            self._connection.send({"op": op, "id": number, **fields}, parts)
        except WireError as error:
            self.close(str(error))
        return answer

    def notify(self, op: str, **fields: Any) -> None:
        """Sends something that has no answer."""
        with contextlib.suppress(WireError):
            self._connection.send({"op": op, **fields})

    def close(self, reason: str) -> None:
        """Ends the connection, and fails all that wait for an answer."""
        with self._lock:
            self._ended = self._ended or reason
            waiting = list(self._answers.values())
            self._answers.clear()
        self._connection.close()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(self._lost())

    def _lost(self) -> StatusError:
        return StatusError(Code.UNAVAILABLE, f"the sidecar of host {self.number} is gone: {self._ended}")

    def _read(self) -> None:
        try:
            while True:
                header, parts = self._connection.receive()
                with self._lock:
                    answer = self._answers.pop(header["id"], None)
                if answer is None:
                    continue
                if "error" in header:
                    text = f"colocated_python on host {self.number}: {header['error']}"
                    answer.set_exception(StatusError(Code.INTERNAL, text))
                else:
                    answer.set_result((header, parts))
        except WireError as error:
            _log.warning("Lost the sidecar of host %d: %s", self.number, error)
            self.close("its process ended" if self.alive else self._ended)


class _Function:
    """A function, and the hosts on which it runs."""

    def __init__(
        self,
        sidecars: Sidecars,
        number: int,
        code: bytes,
        inputs: Sequence[Spec],
        outputs: Sequence[Spec],
        device_ids: Sequence[int],
        devices: Devices,
    ) -> None:
        self.hosts = devices.hosts(device_ids)
        self._sidecars = sidecars
        self._number = number
        self._code = code
        self._inputs = inputs
        self._outputs = outputs
        self._devices = devices
        chips = [each for each in device_ids if devices.all[each].is_chip]
        self._aliases = {str(each): devices.chips + devices.all[each].chip for each in chips}

    def load_on(self, host: _Host) -> None:
        """Loads the function on a host that does not have it.

        Raises:
          StatusError: It cannot be unpickled there, or the host is gone.
        """
        outputs = [
            {
                "dtype": _STRING if spec.is_strings else dtypes.to_numpy(spec.kind).name,
                "shape": list(spec.shape),
                "devices": self._on(host.number, spec),
            }
            for spec in self._outputs
        ]
        host.request("load", [self._code], function=self._number, outputs=outputs, aliases=self._aliases).result()
        host.loaded.add(self._number)

    def call(self, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Calls the function on all of its hosts at once."""
        import jax

        running = [self._call_on(number, inputs) for number in self.hosts]
        futures.wait(running, return_when=futures.FIRST_EXCEPTION)
        # If several failed, the first host's error is reported; hosts that are not done no longer matter.
        for each in running:
            if each.done():
                each.result()
        made: list[dict[int, Any]] = [{} for _ in self._outputs]
        for each in running:
            header, parts = each.result()
            rest = iter(parts)
            for shards, spec, places in zip(made, self._outputs, header["outputs"], strict=True):
                for device in places:
                    part, shape = next(rest), spec.sharding.shard_shape(spec.shape)
                    if spec.is_strings:
                        shards[device] = tuple(sidecar_protocol.unpack_strings(part, math.prod(shape)))
                    else:
                        array = values.read_host(part, spec.kind, shape, None)
                        shards[device] = jax.device_put(array, self._devices.jax_devices[device])
        return [
            [shards[device] for device in spec.sharding.device_ids]
            for shards, spec in zip(made, self._outputs, strict=True)
        ]

    def release(self) -> None:
        """Lets the hosts forget the function."""
        for number in self.hosts:
            # A host that is lost has forgotten it already: connecting again would only start a process there.
            host = self._sidecars.connected(number)
            if host is not None and self._number in host.loaded:
                host.loaded.discard(self._number)
                host.notify("release", function=self._number)

    def _call_on(self, number: int, inputs: Sequence[Sequence[Any]]) -> futures.Future[Answer]:
        host = self._sidecars.host(number)
        if self._number not in host.loaded:
            self.load_on(host)
        places = [self._on(number, spec) for spec in self._inputs]
        parts = []
        for spec, shards, devices in zip(self._inputs, inputs, places, strict=True):
            for device in devices:
                shard = shards[spec.sharding.device_ids.index(device)]
                parts.append(sidecar_protocol.pack_strings(shard) if spec.is_strings else values.to_host(shard, None))
        shapes = [list(spec.sharding.shard_shape(spec.shape)) for spec in self._inputs]
        return host.request("call", parts, function=self._number, inputs=places, shapes=shapes)

    def _on(self, host: int, spec: Spec) -> list[int]:
        return [each for each in spec.sharding.device_ids if self._devices.all[each].host == host]


def _connected(path: str) -> socket.socket:
    """Connects to a sidecar, which may be about to start."""
    ended = threading.Event()
    for _ in range(int(_CONNECT_SECONDS / _RETRY_SECONDS)):
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(path)
            return peer
        except OSError as error:
            peer.close()
            last = error
        # A socket file cannot be waited for in any way that works everywhere.
        ended.wait(_RETRY_SECONDS)
    raise last
