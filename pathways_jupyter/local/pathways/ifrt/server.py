"""The gRPC service: one stream of requests and answers a session, and streams of bytes beside it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from pathways_jupyter.local.pathways.ifrt import (
    array_requests,
    devices,
    executable_requests,
    introduction,
    wire,
)
from pathways_jupyter.local.pathways.ifrt.session import Machine, Session
from pathways_jupyter.local.pathways.ifrt.statuses import StatusError
from pathways_jupyter.local.pathways.ifrt.wire import Version

_log = logging.getLogger(__name__)

_HANDLERS = {**introduction.HANDLERS, **array_requests.HANDLERS, **executable_requests.HANDLERS}

_THREADS = 128
"""Streams served at once: one a session, and one for each host buffer on its way."""

_CHUNK = 4 << 20
_MAX_BUFFER = 1 << 40
_ALIGNMENT = 64
"""XLA takes memory so aligned as it is, and copies any other."""

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.so_reuseport", 0),
    # A burst of small device_puts opens thousands of streams at once; refusing one would end the session.
    ("grpc.server.max_pending_requests", 1 << 30),
    ("grpc.server.max_pending_requests_hard_limit", 1 << 30),
)


class Server:
    """Serves one machine's devices to any number of sessions."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = threading.Lock()
        self._sessions: dict[int, Session] = {}
        self._grpc = grpc.server(futures.ThreadPoolExecutor(_THREADS, "stream"), options=_OPTIONS)
        self._grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(wire.SERVICE, self._methods()),))

    def listen_on_socket(self, path: Path) -> None:
        """Accepts clients on a unix socket, whose directory decides who may come."""
        path.unlink(missing_ok=True)
        if not self._grpc.add_insecure_port(f"unix:{path}"):
            raise OSError(f"cannot listen on {path}")

    def listen_on_loopback(self, port: int) -> int:
        """Accepts clients of this machine on a TCP port; returns it, which matters if `port` is 0."""
        bound: int = self._grpc.add_insecure_port(f"127.0.0.1:{port}")
        if not bound:
            raise OSError(f"cannot listen on port {port}")
        return bound

    def start(self) -> None:
        """Begins to serve."""
        self._grpc.start()

    def stop(self, grace: float = 0.0) -> None:
        """Ends all sessions and stops serving."""
        self._grpc.stop(grace).wait()

    def set_down(self, slices: set[int]) -> None:
        """Takes slices away, and gives back the others: what was on a slice that went down is lost for good."""
        known = self._machine.devices
        before = known.down
        known.set_down(slices)
        for slice_index in sorted(slices - before):
            lost = frozenset(each.id for each in known.all if each.slice_index == slice_index)
            error = devices.slice_down([slice_index])
            count = sum(session.lose(lost, error) for session in self.sessions)
            _log.warning("Slice %d is down: %d arrays are lost", slice_index, count)

    @property
    def sessions(self) -> list[Session]:
        """The sessions that are open."""
        with self._lock:
            return list(self._sessions.values())

    # -- gRPC methods

    def _methods(self) -> dict[str, Any]:
        one, many = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        return {
            "GetVersion": one(
                self._get_version, wire.GetVersionRequest.FromString, wire.GetVersionResponse.SerializeToString
            ),
            "IfrtSession": many(self._session, wire.IfrtRequest.FromString, wire.IfrtResponse.SerializeToString),
            "HostBufferStore": grpc.stream_unary_rpc_method_handler(
                self._store, wire.parse_chunk, wire.StoreResponse.SerializeToString
            ),
            "HostBufferLookup": grpc.unary_stream_rpc_method_handler(
                self._look_up, wire.LookupRequest.FromString, bytes
            ),
            "HostBufferDelete": one(self._delete, wire.DeleteRequest.FromString, wire.DeleteResponse.SerializeToString),
        }

    def _get_version(self, request: Any, context: grpc.ServicerContext) -> Any:
        oldest, newest = (
            Version(each.protocol_version, each.ifrt_serdes_version_number)
            for each in (request.min_version, request.max_version)
        )
        version = wire.choose_version(oldest, newest)
        if version is None:
            _log.warning("A client speaks protocol %d to %d only: refused", oldest.protocol, newest.protocol)
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this proxy speaks protocol {wire.NEWEST.protocol} and older; JAX here is newer than the proxy",
            )
            raise AssertionError("abort() raises")
        response = wire.GetVersionResponse()
        response.version.protocol_version = version.protocol
        response.version.ifrt_serdes_version_number = version.serdes
        return response

    def _session(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        session = Session(self._machine, _HANDLERS)
        with self._lock:
            self._sessions[session.id] = session
        _log.info("Opened %s from %s", session, context.peer())
        threading.Thread(target=_read, args=(session, requests), name=str(session), daemon=True).start()
        try:
            while (response := session.answers.get()) is not None:
                yield response
        finally:
            with self._lock:
                self._sessions.pop(session.id, None)
            arrays, executables, _ = session.size
            session.end()
            _log.info("Closed %s: freed %d arrays and %d executables", session, arrays, executables)

    def _store(self, chunks: Iterator[memoryview], context: grpc.ServicerContext) -> Any:
        metadata = wire.StoreMetadata.FromString(_metadata(context, wire.STORE_METADATA_KEY))
        session = self._find(metadata.session_id, context)
        data = _receive(chunks, metadata.buffer_size, context)
        session.buffers.put(metadata.handle, data)
        return wire.StoreResponse()

    def _look_up(self, request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        session = self._find(request.session_id, context)
        try:
            data = session.buffers.look_up(request.handle)
        except StatusError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, error.message)
        # An empty buffer still is one chunk.
        for start in range(0, max(len(data), 1), _CHUNK):
            yield wire.chunk_message(data[start : start + _CHUNK])

    def _delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._find(request.session_id, context).buffers.delete(request.handle)
        return wire.DeleteResponse()

    def _find(self, session_id: int, context: grpc.ServicerContext) -> Session:
        with self._lock:
            session = self._sessions.get(session_id)
        if session is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such session")
            raise AssertionError("abort() raises")
        return session


def _read(session: Session, requests: Iterator[Any]) -> None:
    """Feeds a session until its client goes, however it goes."""
    with contextlib.suppress(grpc.RpcError):
        for request in requests:
            session.handle(request)
    session.answers.put(None)


def _metadata(context: grpc.ServicerContext, key: str) -> bytes:
    for name, value in context.invocation_metadata():
        if name == key:
            return bytes(value)
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"metadata {key} is missing")
    raise AssertionError("abort() raises")


def _receive(chunks: Iterator[memoryview], size: int, context: grpc.ServicerContext) -> memoryview:
    if not 0 <= size <= _MAX_BUFFER:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{size} is not the size of a buffer")
    space = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -space.ctypes.data % _ALIGNMENT
    data = space.data[skip : skip + size]
    position = 0
    for chunk in chunks:
        if position + len(chunk) > size:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "more bytes were sent than announced")
        data[position : position + len(chunk)] = chunk
        position += len(chunk)
    if position != size:
        context.abort(grpc.StatusCode.DATA_LOSS, f"{position} of {size} bytes were sent")
    return data
