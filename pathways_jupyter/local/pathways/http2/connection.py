"""One connection: its receiving half, and the sender that answers go to.

The client is gRPC's C core in the user's own process: what that never sends is not checked.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from pathways_jupyter.local.pathways.http2 import rpcs, wire
from pathways_jupyter.local.pathways.http2.rpcs import CallError, RpcCall
from pathways_jupyter.local.pathways.http2.sending import Sender
from pathways_jupyter.local.pathways.http2.wire import FrameType, Setting

_log = logging.getLogger(__name__)

_BACKLOG = 128
_SOCKET_BUFFER = 4 << 20
_BUFFER = 256 << 10
_LARGEST_CONTROL = 64 << 10
_REFILL = 1 << 29
"""Bytes after which a client's window is refilled, so early that it is never exhausted."""

_SETTINGS = (
    (Setting.HEADER_TABLE_SIZE, 0),
    (Setting.MAX_CONCURRENT_STREAMS, 1 << 30),
    (Setting.INITIAL_WINDOW_SIZE, wire.LARGEST_WINDOW),
    (Setting.MAX_FRAME_SIZE, 1 << 20),
    (Setting.ALLOW_TRUE_BINARY_METADATA, 1),
)


def listen(path: Path, serve: Callable[[RpcCall], None]) -> None:
    """Accept clients on a unix socket, and serve each on a thread of its own, as long as this process lives.

    Args:
      path: The permissions of its directory control access.
      serve: Gives a call its receiver, or ends the call; called on the thread of the call's connection.

    Raises:
      OSError: The path cannot be used.
    """
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(_BACKLOG)

    def accept() -> None:
        while True:
            peer, _ = listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
            threading.Thread(target=_Connection(peer, serve).run, name="connection", daemon=True).start()

    threading.Thread(target=accept, name=f"accept {path}", daemon=True).start()


class _Connection:
    """One client's connection."""

    def __init__(self, peer: socket.socket, serve: Callable[[RpcCall], None]) -> None:
        self._socket = peer
        self._serve = serve
        self._sender = Sender(peer)
        self._calls: dict[int, RpcCall] = {}
        self._received: dict[int, int] = {}

    def run(self) -> None:
        """Serve until the client disconnects."""
        try:
            settings = b"".join(struct.pack(">HI", *each) for each in _SETTINGS)
            self._sender.control(wire.frame(FrameType.SETTINGS, 0, 0, settings))
            self._sender.control(wire.window_update(0, wire.LARGEST_WINDOW - wire.FIRST_WINDOW))
            self._socket.recv(len(wire.PREFACE), socket.MSG_WAITALL)
            self._read()
        except OSError as error:
            _log.info("A connection ended: %s", error)
        finally:
            self._sender.close()
            left = list(self._calls.values())
            self._calls.clear()
            for call in left:
                self._lose(call)
            self._socket.close()

    def _read(self) -> None:
        buffer = bytearray(_BUFFER)
        view = memoryview(buffer)
        start = end = 0
        left = stream = flags = 0  # of a DATA frame whose bytes are still coming
        while True:
            if start == end:
                start = end = 0
            elif end == len(buffer) or len(buffer) - start < _LARGEST_CONTROL + wire.HEADER_SIZE:
                buffer[: end - start] = buffer[start:end]
                start, end = 0, end - start
            count = self._socket.recv_into(view[end:])
            if count == 0:
                return
            end += count
            self._sender.collect()
            while True:
                if left:
                    piece = view[start : min(end, start + left)]
                    if not piece:
                        break
                    start += len(piece)
                    left -= len(piece)
                    self._data(stream, piece)
                    if left:
                        break
                    self._end_of_data(stream, flags)
                if end - start < wire.HEADER_SIZE:
                    break
                high, low, kind, flags, stream = struct.unpack_from(">HBBBI", buffer, start)
                length = high << 8 | low
                stream &= wire.LARGEST_WINDOW
                if kind == FrameType.DATA:
                    start += wire.HEADER_SIZE
                    left = length
                    self._count(stream, length)
                    if not left:
                        self._end_of_data(stream, flags)
                    continue
                if end - start < wire.HEADER_SIZE + length:
                    break
                start += wire.HEADER_SIZE
                payload = view[start : start + length]
                start += length
                self._control(kind, flags, stream, payload)
            self._sender.flush()

    # -- streams of data

    def _data(self, stream: int, piece: memoryview) -> None:
        call = self._calls.get(stream)
        receiver = call.receiver if call is not None else None
        if call is None or receiver is None:
            return  # Data of a call that the server has ended already.
        try:
            receiver.data(piece)
        except Exception as error:
            _finish(call, error)
            receiver.gone()

    def _end_of_data(self, stream: int, flags: int) -> None:
        if not flags & wire.END_STREAM:
            return
        call = self._calls.pop(stream, None)
        self._received.pop(stream, None)
        if call is None or call.receiver is None:
            return
        receiver, call.receiver = call.receiver, None
        try:
            receiver.end()
        except Exception as error:
            _finish(call, error)
            receiver.gone()

    def _lose(self, call: RpcCall) -> None:
        """Forget a call, of which nothing more will come."""
        receiver, call.receiver = call.receiver, None
        if receiver is not None:
            receiver.gone()

    def _count(self, stream: int, length: int) -> None:
        """Refill the windows of the connection and of a stream that has sent much."""
        for each in (0, stream) if stream in self._calls else (0,):
            received = self._received.get(each, 0) + length
            if received >= _REFILL:
                self._sender.control(wire.window_update(each, received))
                received = 0
            self._received[each] = received

    # -- everything else

    def _control(self, kind: int, flags: int, stream: int, payload: memoryview) -> None:
        if kind == FrameType.HEADERS:
            metadata = {name.decode("ascii", "replace"): value for name, value in wire.decode_headers(bytes(payload))}
            call = RpcCall(self._sender, stream, metadata[":path"].decode("ascii", "replace"), metadata)
            try:
                self._serve(call)
            except Exception as error:
                _finish(call, error)
            if call.receiver is not None:
                self._calls[stream] = call
                self._end_of_data(stream, flags)
        elif kind == FrameType.SETTINGS:
            if not flags & wire.ACK:
                for setting, value in struct.iter_unpack(">HI", payload):
                    self._sender.apply(setting, value)
                self._sender.control(wire.frame(FrameType.SETTINGS, wire.ACK, 0))
        elif kind == FrameType.PING:
            if not flags & wire.ACK:
                self._sender.control(wire.frame(FrameType.PING, wire.ACK, 0, bytes(payload)))
        elif kind == FrameType.WINDOW_UPDATE:
            self._sender.widen(stream, int.from_bytes(payload) & wire.LARGEST_WINDOW)
        elif kind == FrameType.RST_STREAM:
            self._received.pop(stream, None)
            self._sender.drop(stream)
            if (cancelled := self._calls.pop(stream, None)) is not None:
                self._lose(cancelled)


def _finish(call: RpcCall, error: Exception) -> None:
    """End a call whose handler or receiver has raised."""
    if isinstance(error, CallError):
        call.finish(error.code, error.message)
    else:
        _log.error("%s failed", call.path, exc_info=error)
        call.finish(*rpcs.error_status(error))
