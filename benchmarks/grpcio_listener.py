"""The embedded proxy's listener built on grpcio, to measure the one that it uses against.

It gives the same calls to the same server as :func:`pathways_jupyter.local.pathways.http2.connection.listen`.
"""

from __future__ import annotations

import queue
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from pathways_jupyter.local.pathways.http2.rpcs import Content, Messages, RpcCall

_PREFIX = struct.Struct(">BI")
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # JAX sends thousands of small streams at once.
    ("grpc.server.max_pending_requests", 1 << 20),
    ("grpc.server.max_pending_requests_hard_limit", 1 << 20),
]
_THREADS = 256
_servers: list[grpc.Server] = []
"""A server ends with its last reference."""


class GrpcioCall:
    """One call, with the interface of :class:`~pathways_jupyter.local.pathways.http2.rpcs.RpcCall`."""

    def __init__(self, path: str, metadata: Mapping[str, bytes]) -> None:
        self.path = path
        self.metadata = metadata
        self.receiver: Messages | Content | None = None
        self.status = (0, "")
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def send(self, *parts: Any) -> None:
        """Send one message."""
        self.outbox.put(b"".join(parts) if len(parts) != 1 else bytes(parts[0]))

    def finish(self, code: int = 0, message: str = "") -> None:
        """End the call."""
        self.status = (code, message)
        self.outbox.put(None)


def listen(path: Path, serve: Callable[[RpcCall], None]) -> None:
    """Accept clients on a unix socket."""
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS), handlers=[_Handler(serve)], options=_OPTIONS)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    _servers.append(server)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, serve: Callable[[RpcCall], None]) -> None:
        self._serve = serve

    def service(self, details: Any) -> Any:
        """Return the handler of a method; grpcio calls this."""

        def behave(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            metadata = {
                key: value if isinstance(value, bytes) else value.encode()
                for key, value in context.invocation_metadata()
            }
            call = GrpcioCall(details.method, metadata)
            self._serve(call)  # type: ignore[arg-type]
            threading.Thread(target=_read, args=(requests, call), daemon=True).start()
            while (message := call.outbox.get()) is not None:
                yield message
            code, text = call.status
            if code:
                context.abort(_CODES[code], text)

        return grpc.stream_stream_rpc_method_handler(behave)


def _read(requests: Iterator[bytes], call: GrpcioCall) -> None:
    receiver = call.receiver
    if receiver is None:
        return
    try:
        for message in requests:
            prefix = _PREFIX.pack(0, len(message))
            if isinstance(receiver, Content):
                receiver.data(memoryview(prefix))
                receiver.data(memoryview(message))
            else:
                receiver.data(memoryview(prefix + message))
    except grpc.RpcError:
        receiver.gone()
        call.outbox.put(None)
    else:
        receiver.end()
