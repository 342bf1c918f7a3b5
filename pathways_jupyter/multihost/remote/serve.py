"""Answer one client: the main loop of the program on a host.

Everything happens in one thread around one ``select``: requests arrive on standard input, answers and the output of a
run leave on standard output, which never blocks the loop. So a client that reads slowly still keeps its run alive.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import sys
import time
import zlib
from collections import deque

from pathways_jupyter.multihost.remote import keeper
from pathways_jupyter.multihost.remote.frames import Decoder, encode
from pathways_jupyter.multihost.remote.sync import Sync, remove_old

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pathways_jupyter.multihost.remote.frames import Frame

_READ_BYTES = 256 * 1024
_SEND_BYTES = 256 * 1024
_PIPE_BYTES = 1024 * 1024
_SET_PIPE_SIZE = 1031
"""``fcntl.F_SETPIPE_SZ``, which Python has only from 3.10 on."""
_QUICK_SECONDS, _IDLE_SECONDS = 0.005, 0.2
_SILENCE_SECONDS = 90.0
"""The client pings more often than this; without a ping the connection is dead."""
_RUN_SECONDS = 30 * 24 * 3600.0


class Server:
    """The state of one connection; requests arrive on the file `source`, answers leave on the file `sink`."""

    def __init__(self, source: int = 0, sink: int = 1) -> None:
        self._source, self._sink = source, sink
        self._home = os.path.expanduser("~")
        self._state = f"{self._home}/.pathways-jupyter"
        self._runs = f"{self._state}/runs"
        self._decoder = Decoder()
        self._frames: deque[Frame] = deque()
        self._last_data = time.monotonic()
        self._out = bytearray()
        self._sync: Sync | None = None
        # The run that is followed, its open output, and how much of that the client has.
        self._run, self._output, self._offset = "", -1, 0
        self._answers = {
            "ping": self._on_ping,
            "echo": self._on_echo,
            "compare": self._on_compare,
            "apply": self._on_apply,
            "start": self._on_start,
            "follow": self._on_follow,
            "stop": self._on_stop,
            "status": self._on_status,
            "read": self._on_read,
        }

    def serve(self) -> None:
        """Answer until the client closes the connection, or is silent for too long.

        Raises:
          ValueError: The client sent something else than frames.
        """
        os.set_blocking(self._sink, False)
        with contextlib.suppress(OSError):
            # sshd writes to a pipe of 64 KiB. With a larger one, it and this process wake each other less often, which
            # halves what they need of the processor for each byte. It is no pipe everywhere, and may be forbidden.
            fcntl.fcntl(self._source, _SET_PIPE_SIZE, _PIPE_BYTES)
        self._send({"op": "hello", "python": ".".join(map(str, sys.version_info[:3]))})
        pause = _QUICK_SECONDS
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            while True:
                frame = self._receive(pause if self._run else _SILENCE_SECONDS)
                if frame is not None:
                    self._answer(*frame)
                pause = _QUICK_SECONDS if self._follow() else min(2 * pause, _IDLE_SECONDS)

    def _receive(self, timeout: float) -> Frame | None:
        """Send what is queued; return the next request, or None if none has come in time.

        Raises:
          EOFError: None will come.
        """
        with contextlib.suppress(BlockingIOError):
            while self._out:
                del self._out[: os.write(self._sink, self._out)]
        if not self._frames:
            readable, _, _ = select.select([self._source], [self._sink] if self._out else [], [], timeout)
            if readable:
                data = os.read(self._source, _READ_BYTES)
                self._last_data = time.monotonic()
                self._frames.extend(self._decoder.feed(data))
            if (readable and not data) or time.monotonic() - self._last_data > _SILENCE_SECONDS:
                raise EOFError
        return self._frames.popleft() if self._frames else None

    def _answer(self, header: dict[str, Any], payload: memoryview) -> None:
        try:
            self._answers[header["op"]](header, payload)
        except (OSError, ValueError) as error:
            full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
            path = getattr(error, "filename2", None) or getattr(error, "filename", None) or ""
            text = getattr(error, "strerror", None) or str(error)
            self._send({"op": "error", "kind": "full" if full else "system", "message": text, "path": str(path)})

    def _send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        self._out += encode(header, payload)

    def _on_ping(self, header: dict[str, Any], payload: memoryview) -> None:
        if self._run:
            with contextlib.suppress(OSError):
                os.utime(f"{self._run}/{keeper.CLIENT}")

    def _on_echo(self, header: dict[str, Any], payload: memoryview) -> None:
        self._send({"op": "echo"})

    def _on_compare(self, header: dict[str, Any], payload: memoryview) -> None:
        entries = json.loads(zlib.decompress(payload))
        self._sync = Sync(self._state, header["name"], f"{self._home}/{header['directory']}", entries)
        self._send({"op": "missing"}, zlib.compress(json.dumps(self._sync.compare()).encode(), 1))

    def _on_apply(self, header: dict[str, Any], payload: memoryview) -> None:
        """Receive what was missing, in frames of which the last one is empty, and change the directory."""
        assert self._sync is not None
        pieces = _Pieces(self._receive)
        try:
            if self._sync.missing:
                self._sync.receive(pieces)
            written = self._sync.apply()
        except OSError:
            # For instance because the disk is full. Of a lost connection everything is kept.
            self._sync.discard()
            raise
        finally:
            self._sync = None
            # In any case: what is left would be taken for requests. Not if the client has gone, which raises again.
            while pieces.read():
                pass
        self._send({"op": "applied", "written": written})

    def _on_start(self, header: dict[str, Any], payload: memoryview) -> None:
        spec = header["spec"]
        cwd = f"{self._home}/{spec['cwd']}"
        if not os.path.isdir(cwd):
            self._send({"op": "error", "kind": "directory", "message": "there is no such directory", "path": cwd})
            return
        keeper.start(f"{self._runs}/{spec['run']}", {**spec, "cwd": cwd})
        self._send({"op": "started"})
        remove_old(self._runs, _RUN_SECONDS, keeper.is_running)

    def _on_follow(self, header: dict[str, Any], payload: memoryview) -> None:
        directory = f"{self._runs}/{header['run']}"
        if not os.path.isdir(directory):
            self._send({"op": "error", "kind": "run", "message": "this host does not know the run", "path": ""})
            return
        if self._output >= 0:
            # Of an earlier run.
            os.close(self._output)
        self._run, self._output, self._offset = directory, -1, header["offset"]
        self._on_ping(header, payload)

    def _on_stop(self, header: dict[str, Any], payload: memoryview) -> None:
        keeper.ask_to_stop(f"{self._runs}/{header['run']}")

    def _on_status(self, header: dict[str, Any], payload: memoryview) -> None:
        directory = f"{self._runs}/{header['run']}"
        known = os.path.isdir(directory)
        self._send({"op": "status", "known": known, "outcome": keeper.outcome(directory) if known else None})

    def _on_read(self, header: dict[str, Any], payload: memoryview) -> None:
        data = b""
        with contextlib.suppress(OSError), open(f"{self._runs}/{header['run']}/{keeper.OUTPUT}", "rb") as output:
            output.seek(header["offset"])
            data = output.read(_SEND_BYTES)
        self._send({"op": "output"}, data)

    def _follow(self) -> bool:
        """Queue more of the run's output, or its end; return whether there was something."""
        if not self._run or self._out:
            return bool(self._out)
        # Before the output is read: so all of it was there when nothing more is found.
        outcome = keeper.outcome(self._run)
        with contextlib.suppress(OSError):
            if self._output < 0:
                self._output = os.open(f"{self._run}/{keeper.OUTPUT}", os.O_RDONLY)
            if data := os.pread(self._output, _SEND_BYTES, self._offset):
                self._send({"op": "output"}, data)
                self._offset += len(data)
                return True
        if outcome is None:
            return False
        if outcome["why"] == "lost":
            # The keeper was killed; end what it can no longer end.
            keeper.ask_to_stop(self._run)
        self._send({"op": "exit", **outcome})
        self._run = ""
        return True


class _Pieces:
    """The payloads of the frames that follow a request, as a file."""

    def __init__(self, receive: Callable[[float], Frame | None]) -> None:
        self._receive = receive
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        """Return the next one, whatever its size; nothing after the last one.

        Raises:
          EOFError: The client has gone.
        """
        while not self._ended:
            frame = self._receive(_SILENCE_SECONDS)
            if frame is not None and frame[0]["op"] == "piece":
                self._ended = not frame[1]
                return bytes(frame[1])
        return b""


def main() -> None:
    """Serve the client at standard input and output."""
    try:
        Server().serve()
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
