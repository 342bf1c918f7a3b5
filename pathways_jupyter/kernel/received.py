"""The pod's end of a folder that is sent to it: in a thread, over a socket of this process."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from pathlib import Path

from pathways_jupyter.multihost.remote.step import STATE
from pathways_jupyter.multihost.remote.sync import SizedInput, Sync

_READ_BYTES = 1024 * 1024
_writing = threading.Lock()
"""Two notebooks may have the same folder."""


def receive(connection: socket.socket, directory: Path) -> None:
    """Make `directory` hold what the other end of `connection` lists, and answer what was missing and written."""
    with connection, connection.makefile("rb") as file, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream = SizedInput(file.read, 0)
        try:
            entries = json.loads(file.read(int(file.readline())))
            # A name of its own: that of this process may be that of one before it, in another container.
            name = f"{directory.name}.{secrets.token_hex(4)}"
            with _writing, Sync(STATE, name, str(directory), entries, keeps=True) as sync:
                connection.sendall(json.dumps({"missing": sync.compare()}).encode() + b"\n")
                if sync.missing:
                    stream = SizedInput(file.read, int(file.readline()))
                    sync.receive(stream)
                sync.apply()
            answer: dict[str, object] = {}
        except (OSError, EOFError, ValueError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
            answer = {"error": why}
            # To its end: the other end reads an error only when it has sent everything.
            with contextlib.suppress(ValueError, OSError):
                while stream.read(_READ_BYTES):
                    pass
        connection.sendall(json.dumps(answer).encode() + b"\n")
