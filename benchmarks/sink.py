"""The far end of the tunnel bench: a program in a pod that takes bytes, gives bytes, or sends them back.

A connection begins with nine bytes: what to do (``U`` take, ``D`` give, ``E`` echo) and how many, big-endian.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading

HEADER = struct.Struct(">cQ")
PIECE = 1 << 20


def main(arguments: list[str]) -> int:
    """Serve on the pod's address and the port in `arguments` until the pod ends."""
    server = socket.create_server((os.environ.get("POD_IP", "127.0.0.1"), int(arguments[0])))
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def receive(connection: socket.socket, size: int, piece: int = PIECE) -> None:
    """Read `size` bytes and forgets them.

    Raises:
      EOFError: The other side closed first.
    """
    held = bytearray(piece)
    while size:
        read = connection.recv_into(held, min(piece, size))
        if not read:
            raise EOFError(f"{size} bytes are missing")
        size -= read


def send(connection: socket.socket, size: int) -> None:
    """Write `size` bytes."""
    piece = bytes(PIECE)
    while size:
        part = piece[: min(PIECE, size)]
        connection.sendall(part)
        size -= len(part)


def _serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        head = b""
        while len(head) < HEADER.size:
            more = connection.recv(HEADER.size - len(head))
            if not more:
                return
            head += more
        action, size = HEADER.unpack(head)
        if action == b"U":
            receive(connection, size)
            connection.sendall(b"!")
        elif action == b"D":
            send(connection, size)
        else:
            while piece := connection.recv(PIECE):
                connection.sendall(piece)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
