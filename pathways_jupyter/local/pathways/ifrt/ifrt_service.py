"""The gRPC service: one stream of requests and answers a session, and streams of bytes beside it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pathways_jupyter.local.pathways.http2 import connection
from pathways_jupyter.local.pathways.http2.rpcs import Content, Messages, RpcCall
from pathways_jupyter.local.pathways.ifrt import array_requests, devices, executable_requests, messages, statuses
from pathways_jupyter.local.pathways.ifrt.buffers import Upload, chunk_head
from pathways_jupyter.local.pathways.ifrt.client_session import Handler, IfrtSession
from pathways_jupyter.local.pathways.ifrt.devices import MEMORY_KINDS, PLATFORM, Device
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.messages import Attribute, Version
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.statuses import Code, IfrtStatusError

_log = logging.getLogger(__name__)

_PLATFORM_VERSION = "pathways_jupyter"
_PLATFORM_ID = 0x70617468  # any number that stays the same
_CHUNK = 256 << 10
"""Clients copy each chunk more than once, which is cheaper while it is in their cache."""


class Server:
    """Serves one machine's devices to any number of sessions."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = threading.Lock()
        self._sessions: dict[int, IfrtSession] = {}
        self._methods: dict[str, Callable[[RpcCall], None]] = {
            f"/{messages.SERVICE}/{name}": method
            for name, method in (
                ("GetVersion", self._get_version),
                ("IfrtSession", self._session),
                ("HostBufferStore", self._store),
                ("HostBufferLookup", self._look_up),
                ("HostBufferDelete", self._delete),
            )
        }

    def listen(self, path: Path) -> None:
        """Serve clients on a unix socket."""
        connection.listen(path, self._serve)

    def set_down(self, slices: Collection[int]) -> None:
        """Take slices away, and give back the others: what was on a slice that went down is lost for good."""
        machine_devices = self._machine.devices
        before = machine_devices.down
        machine_devices.down = frozenset(slices)
        for slice_index in sorted(set(slices) - before):
            lost = frozenset(each.id for each in machine_devices.all if each.slice_index == slice_index)
            error = devices.slice_down([slice_index])
            count = sum(session.lose(lost, error) for session in self.sessions)
            _log.warning("Slice %d is down: %d arrays are lost", slice_index, count)

    @property
    def sessions(self) -> list[IfrtSession]:
        """The sessions that are open."""
        with self._lock:
            return list(self._sessions.values())

    # -- gRPC methods; all on the thread of the call's connection

    def _serve(self, call: RpcCall) -> None:
        method = self._methods.get(call.path)
        if method is None:
            raise statuses.unimplemented(f"there is no method {call.path}")
        method(call)

    def _get_version(self, call: RpcCall) -> None:
        def answer(data: bytes) -> None:
            request = messages.GetVersionRequest.FromString(data)
            oldest, newest = (
                Version(each.protocol_version, each.ifrt_serdes_version_number)
                for each in (request.min_version, request.max_version)
            )
            version = messages.choose_version(oldest, newest)
            if version is None:
                _log.warning("A client speaks protocol %d to %d only: refused", oldest.protocol, newest.protocol)
                raise IfrtStatusError(
                    Code.FAILED_PRECONDITION,
                    f"this proxy speaks protocol {messages.NEWEST.protocol} and older; "
                    "JAX here is newer than the proxy",
                )
            response = messages.GetVersionResponse()
            response.version.protocol_version = version.protocol
            response.version.ifrt_serdes_version_number = version.serdes
            call.send(response.SerializeToString())
            call.finish()

        call.receiver = Messages(answer)

    def _session(self, call: RpcCall) -> None:
        session = IfrtSession(self._machine, _HANDLERS, lambda response: call.send(response.SerializeToString()))
        with self._lock:
            self._sessions[session.id] = session
        _log.info("Opened %s", session)

        def take(data: bytes) -> None:
            session.handle(messages.IfrtRequest.FromString(data))

        def gone() -> None:
            with self._lock:
                if self._sessions.pop(session.id, None) is None:
                    return
            arrays, executables = session.end()
            _log.info("Closed %s: freed %d arrays and %d executables", session, arrays, executables)

        def end() -> None:
            gone()
            call.finish()

        call.receiver = Messages(take, end, gone)

    def _store(self, call: RpcCall) -> None:
        metadata = messages.StoreMetadata.FromString(call.metadata[messages.STORE_METADATA_KEY])
        session = self._find(metadata.session_id)
        upload = Upload(metadata.buffer_size)

        def end() -> None:
            session.buffers.put(metadata.handle, upload.data)
            call.send(_NOTHING)
            call.finish()

        call.receiver = Content(upload.begin, upload.piece, end)

    def _look_up(self, call: RpcCall) -> None:
        def answer(data: bytes) -> None:
            request = messages.LookupRequest.FromString(data)
            buffer = self._find(request.session_id).buffers.look_up(request.handle)
            # An empty buffer still is one chunk.
            for start in range(0, max(len(buffer), 1), _CHUNK):
                chunk = buffer[start : start + _CHUNK]
                call.send(chunk_head(len(chunk)), chunk)
            call.finish()

        call.receiver = Messages(answer)

    def _delete(self, call: RpcCall) -> None:
        def answer(data: bytes) -> None:
            request = messages.DeleteRequest.FromString(data)
            self._find(request.session_id).buffers.delete(request.handle)
            call.send(_NOTHING)
            call.finish()

        call.receiver = Messages(answer)

    def _find(self, session_id: int) -> IfrtSession:
        with self._lock:
            session = self._sessions.get(session_id)
        if session is None:
            raise statuses.invalid(f"there is no session {session_id:016x}")
        return session


_NOTHING = b""


def introduce(session: IfrtSession, message: Any, response: Any) -> Promise:
    """Describe the devices; answer once every slice is placed, which is when they begin to exist."""
    del message
    response.session_id = session.id
    response.platform_name = PLATFORM
    response.platform_version = _PLATFORM_VERSION
    response.platform_id = _PLATFORM_ID
    response.runtime_type = "pathways"
    for device in session.machine.devices.all:
        _describe(response, device)
        response.addressable_device_ids.append(device.id)
        if device.is_chip:
            response.primary_device_ids.append(device.id)
    # With Shardy, programs arrive with their shardings still in the client's own axes.
    messages.write_attributes(response.client_attributes, {"serialize_with_sdy": True})
    return session.machine.placed


def _describe(response: Any, device: Device) -> None:
    entry = response.all_devices.add(
        id=device.id,
        local_device_id=device.id,
        local_hardware_id=device.id,
        platform_name=PLATFORM if device.is_chip else "cpu",
        device_kind=device.kind,
        debug_string=str(device),
        to_string=str(device),
        default_memory_id=device.id * len(MEMORY_KINDS),
    )
    attributes: dict[str, Attribute] = {
        "slice_index": device.slice_index,
        "virtual_task_index": device.host,
        "colocation_id": device.chip,
    }
    if device.coords is not None:
        attributes |= {"coords": device.coords, "core_on_chip": 0, "num_cores": 1}
    messages.write_attributes(entry.attributes, attributes)
    for number, kind in enumerate(MEMORY_KINDS):
        name = f"{kind}:{device.id}"
        memory = response.memories.add(
            id=device.id * len(MEMORY_KINDS) + number,
            memory_space_kind=kind,
            kind_id=number,
            debug_string=name,
            to_string=name,
        )
        memory.device_ids.append(device.id)
        entry.memory_ids.append(memory.id)


_HANDLERS: dict[str, Handler] = {"init": introduce, **array_requests.HANDLERS, **executable_requests.HANDLERS}
