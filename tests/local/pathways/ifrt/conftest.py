"""A client that speaks the protocol message by message, to say what JAX would never say."""

from __future__ import annotations

import itertools
import queue
import threading

import grpc
import numpy as np
import pytest

from pathways_jupyter.local.pathways.ifrt import buffers, dtypes, messages
from pathways_jupyter.local.pathways.ifrt.statuses import Code

_DEADLINE = 60.0
_KINDS = (4, 5, 6, 11, 12)
"""int32, int64, uint8, float32, float64"""

# What a client sends when it opens a session.
SESSION_METADATA_KEY = "ifrt-proxy-grpc-ifrt-session-metadata-bin"
SessionMetadata = messages.message_class("xla.ifrt.proxy.GrpcIfrtSessionMetadata")


class RawSession:
    """One session; every request gets its answer by `answer`, in any order."""

    def __init__(self, target: str, version: tuple[int, int] = (25, 3)) -> None:
        self.channel = grpc.insecure_channel(target.removeprefix("grpc://"))
        metadata = SessionMetadata()
        metadata.version.protocol_version, metadata.version.ifrt_serdes_version_number = version
        self._requests: queue.SimpleQueue = queue.SimpleQueue()
        self._answers: dict[int, object] = {}
        self._changed = threading.Condition()
        self._ops, self._handles = itertools.count(1), itertools.count(1)
        self.ended = threading.Event()
        self._responses = self.channel.stream_stream(
            f"/{messages.SERVICE}/IfrtSession",
            request_serializer=messages.IfrtRequest.SerializeToString,
            response_deserializer=messages.IfrtResponse.FromString,
        )(
            iter(self._requests.get, None),
            metadata=[(SESSION_METADATA_KEY, metadata.SerializeToString())],
        )
        threading.Thread(target=self._read, daemon=True).start()
        self.id = self.call("init").session_id

    def send(self, name: str, fill=lambda message: None, **fields) -> int:
        request = messages.IfrtRequest()
        request.request_metadata.op_id = next(self._ops)
        message = getattr(request, f"{name}_request")
        message.SetInParent()
        for field, value in fields.items():
            if isinstance(value, list):
                getattr(message, field).extend(value)
            else:
                setattr(message, field, value)
        fill(message)
        self._requests.put(request)
        return request.request_metadata.op_id

    def answer(self, op: int, deadline: float = _DEADLINE):
        """The whole response, whatever its status."""
        with self._changed:
            if not self._changed.wait_for(lambda: op in self._answers or self.ended.is_set(), deadline):
                raise TimeoutError(f"no answer to request {op} after {deadline} s")
            return self._answers.pop(op)

    def answered(self, op: int) -> bool:
        with self._changed:
            return op in self._answers

    def call(self, name: str, fill=lambda message: None, **fields):
        """The answer's message; an error is raised."""
        response = self.answer(self.send(name, fill, **fields))
        status = response.response_metadata.status
        if status.code:
            raise RequestError(Code(status.code), status.message)
        return getattr(response, f"{name}_response")

    def handle(self) -> int:
        return next(self._handles)

    def make_array(self, values: np.ndarray, *, device: int = 0, store: bool = True) -> tuple[int, int]:
        """Asks for an array; returns its handle, and that of its host buffer, which `store` may send later."""
        array, buffer = self.handle(), self.handle()

        def fill(message) -> None:
            message.dtype.kind = next(each for each in _KINDS if dtypes.to_numpy(each) == values.dtype)
            message.shape.SetInParent()
            message.shape.dims.extend(values.shape)
            single(message.sharding, device)

        if store:
            self.store(buffer, values.tobytes())
        self.call("make_array_from_host_buffer", fill, array_handle=array, host_buffer_handle=buffer)
        return array, buffer

    def store(self, buffer: int, data: bytes) -> None:
        metadata = messages.StoreMetadata(session_id=self.id, handle=buffer, buffer_size=len(data))
        self.channel.stream_unary(f"/{messages.SERVICE}/HostBufferStore")(
            iter([buffers.chunk_head(len(data)) + data]),
            metadata=[(messages.STORE_METADATA_KEY, metadata.SerializeToString())],
            timeout=_DEADLINE,
        )

    def read(self, array: int, dtype) -> np.ndarray:
        buffer = self.handle()
        self.call("copy_to_host_buffer", array_handle=array, host_buffer_handle=buffer)
        chunks = self.channel.unary_stream(
            f"/{messages.SERVICE}/HostBufferLookup",
            request_serializer=messages.LookupRequest.SerializeToString,
            response_deserializer=messages.message_class("xla.ifrt.proxy.GrpcHostBufferLookupResponse").FromString,
        )(messages.LookupRequest(session_id=self.id, handle=buffer), timeout=_DEADLINE)
        return np.frombuffer(b"".join(each.data for each in chunks), dtype)

    def close(self) -> None:
        self._responses.cancel()
        self._requests.put(None)
        self.channel.close()

    def _read(self) -> None:
        try:
            for response in self._responses:
                with self._changed:
                    self._answers[response.response_metadata.op_id] = response
                    self._changed.notify_all()
        except grpc.RpcError:
            pass
        finally:
            with self._changed:
                self.ended.set()
                self._changed.notify_all()


class RequestError(Exception):
    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


def single(message, device: int) -> None:
    """Fills a ShardingProto with one device."""
    message.serialized_sharding.type_name = "xla::ifrt::SingleDeviceSharding"
    message.serialized_sharding.data = messages.SingleDeviceSharding(device_id=device).SerializeToString()


@pytest.fixture
def open_raw():
    """Opens sessions of that kind on the server at a target."""
    opened: list[RawSession] = []

    def open_session(target: str, **options) -> RawSession:
        opened.append(RawSession(target, **options))
        return opened[-1]

    yield open_session
    for session in opened:
        session.close()


@pytest.fixture
def raw(service, open_raw):
    """Opens them on the proxy."""
    return lambda **options: open_raw(service.target("proxy"), **options)
