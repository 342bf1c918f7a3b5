"""Accepts connections, and serves each on a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from pathways_jupyter.local.pathways.http2.calls import Call
from pathways_jupyter.local.pathways.http2.connection import Connection

_log = logging.getLogger(__name__)

_BACKLOG = 128
_SOCKET_BUFFER = 4 << 20


class Listener:
    """Serves calls on unix sockets.

    Args:
      serve: Sets a call's receiver, or ends the call; called on the thread of the call's connection.
    """

    def __init__(self, serve: Callable[[Call], None]) -> None:
        self._serve = serve
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._connections: set[Connection] = set()

    def listen(self, path: Path) -> None:
        """Accept clients on a unix socket; the permissions of its directory control access.

        Raises:
          OSError: The path cannot be used.
        """
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        self._sockets.append(listener)
        threading.Thread(target=self._accept, args=(listener,), name=f"accept {path}", daemon=True).start()

    def stop(self) -> None:
        """Close everything; the receivers of open calls are notified."""
        with self._lock:
            sockets, connections = self._sockets, list(self._connections)
            self._sockets = []
        for each in sockets:
            # Closing alone would not wake the thread that accepts.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for connection in connections:
            connection.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
            threading.Thread(target=self._run, args=(peer,), name="connection", daemon=True).start()

    def _run(self, peer: socket.socket) -> None:
        connection = Connection(peer, self._serve)
        with self._lock:
            self._connections.add(connection)
        try:
            connection.run()
        except Exception:
            _log.exception("A connection failed")
        finally:
            with self._lock:
                self._connections.discard(connection)
