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

from pathways_jupyter.multihost.remote import keeper, processes
from pathways_jupyter.multihost.remote.content_store import Store
from pathways_jupyter.multihost.remote.frames import Decoder, encode
from pathways_jupyter.multihost.remote.tree import FILE, Library, lacking, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pathways_jupyter.multihost.remote.share import Fetch, Share

VERSION = 1
_STATE = ".pathways-jupyter"
_READ_BYTES = 256 * 1024
_PIPE_BYTES = 1024 * 1024
_SET_PIPE_SIZE = 1031
"""``fcntl.F_SETPIPE_SZ``, which Python has only from 3.10 on."""
_SEND_BYTES = 256 * 1024
_QUICK_SECONDS, _IDLE_SECONDS = 0.005, 0.2
_SILENCE_SECONDS = 90.0
"""The client pings more often than this; without a ping the connection is dead."""
_RUN_RECORD_SECONDS = 30 * 24 * 3600.0
_PROGRESS_SECONDS = 0.25


class Server:
    """The state of one connection."""

    def __init__(self) -> None:
        self._home = os.path.expanduser("~")
        self._root = f"{self._home}/{_STATE}"
        self._store: Store | None = None
        self._library = Library(f"{self._root}/trees")
        self._entries: list[list[Any]] = []
        self._absent: list[str] = []
        self._files: dict[str, str] = {}
        self._share: Share | None = None
        self._fetch: Fetch | None = None
        self._reported = 0.0
        self._out = bytearray()
        self._run: str | None = None
        self._output = -1
        self._offset = 0
        self._failed = False
        self._answers = {
            "ping": self._on_ping,
            "echo": self._on_echo,
            "offer": self._on_offer,
            "blob": self._on_blob,
            "unpack": self._on_unpack,
            "share": self._on_share,
            "unshare": self._on_unshare,
            "fetch": self._on_fetch,
            "start": self._on_start,
            "follow": self._on_follow,
            "stop": self._on_stop,
            "status": self._on_status,
            "read": self._on_read,
            "holders": self._on_holders,
        }

    def serve(self) -> None:
        """Answer until the client closes the connection."""
        decoder, last_frame, pause = Decoder(), time.monotonic(), _QUICK_SECONDS
        os.set_blocking(1, False)
        with contextlib.suppress(OSError):
            # sshd writes to a pipe of 64 KiB. With a larger one, it and this process wake each other less often, which
            # halves what they need of the processor for each byte. It is no pipe everywhere, and may be forbidden.
            fcntl.fcntl(0, _SET_PIPE_SIZE, _PIPE_BYTES)
        python = ".".join(map(str, sys.version_info[:3]))
        self._send({"op": "hello", "version": VERSION, "python": python, "home": self._home})
        while True:
            timeout = pause if self._run is not None else _SILENCE_SECONDS
            watched: list[Any] = [0]
            if self._fetch is not None:
                watched.append(self._fetch)
                timeout = 0.0 if self._fetch.pending else 1.0
            readable, _, _ = select.select(watched, [1] if self._out else [], [], timeout)
            if self._fetch is not None:
                self._receive(self._fetch)
            if 0 in readable:
                data = os.read(0, _READ_BYTES)
                if not data:
                    return
                last_frame = time.monotonic()
                for header, payload in decoder.feed(data):
                    self._answer(header, payload)
            elif time.monotonic() - last_frame > _SILENCE_SECONDS:
                return
            pause = _QUICK_SECONDS if self._follow() else min(2 * pause, _IDLE_SECONDS)
            self._flush()

    def close(self) -> None:
        """Remove what arrived in part."""
        self._on_unshare({}, memoryview(b""))
        self._end_fetch()
        if self._store is not None:
            self._store.close(keep=True)

    def _answer(self, header: dict[str, Any], payload: memoryview) -> None:
        operation = header["op"]
        try:
            self._answers[operation](header, payload)
        except OSError as error:
            self._fail(error)
            # The client learns it at its next answer; until then it may be sending content.
            self._failed = operation == "blob"

    def _fail(self, error: OSError) -> None:
        kind = "full" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "system"
        text = error.strerror or str(error)
        self._send({"op": "error", "kind": kind, "message": text, "path": str(error.filename or "")})

    def _on_ping(self, header: dict[str, Any], payload: memoryview) -> None:
        if self._run is not None:
            with contextlib.suppress(OSError):
                os.utime(f"{self._run}/{keeper.CLIENT}")

    def _on_echo(self, header: dict[str, Any], payload: memoryview) -> None:
        self._send({"op": "echo"})

    def _on_offer(self, header: dict[str, Any], payload: memoryview) -> None:
        if self._store is None:
            self._store = Store(f"{self._root}/store")
        self._failed = False
        self._entries = json.loads(zlib.decompress(payload))
        absent = lacking(self._entries, self._store, self._library, f"{self._home}/{header['directory']}")
        self._absent = absent
        self._send({"op": "lack"}, zlib.compress(json.dumps(absent).encode(), 1))

    def _on_blob(self, header: dict[str, Any], payload: memoryview) -> None:
        assert self._store is not None
        if self._failed:
            return
        self._store.add(header["hash"], header["codec"], payload, last=header["last"], trusted=True)

    def _on_unpack(self, header: dict[str, Any], payload: memoryview) -> None:
        assert self._store is not None
        if self._failed:
            return
        directory = f"{self._home}/{header['directory']}"
        written = unpack(self._entries, self._store, self._library, directory)
        # Before a run is started: its keeper would inherit the lock.
        self._store.close(keep=False)
        self._files = {content: f"{directory}/{path}" for kind, path, _, content in self._entries if kind == FILE}
        self._store, self._entries, self._absent = None, [], []
        self._send({"op": "unpacked", "directory": directory, "written": written})

    def _on_share(self, header: dict[str, Any], payload: memoryview) -> None:
        # Imported where it is needed, which it is in few connections.
        from pathways_jupyter.multihost.remote.share import Share, own_address

        if self._share is None:
            try:
                self._share = Share(self._files, bytes(payload), header["address"] or own_address())
            except ImportError as error:
                raise OSError("its Python has no ssl") from error
        self._send({"op": "shared", "address": self._share.address, "port": self._share.port})

    def _on_unshare(self, header: dict[str, Any], payload: memoryview) -> None:
        if self._share is not None:
            self._share.close()
            self._share = None

    def _on_fetch(self, header: dict[str, Any], payload: memoryview) -> None:
        from pathways_jupyter.multihost.remote.share import Fetch, FetchError

        assert self._store is not None
        try:
            self._fetch = Fetch(header["address"], header["port"], bytes(payload), self._store, self._absent)
        except (FetchError, ImportError) as error:
            self._send({"op": "fetched", "problem": str(error)})

    def _receive(self, fetch: Fetch) -> None:
        """Keep what has arrived from another host; answer the client at the end."""
        from pathways_jupyter.multihost.remote.share import FetchError

        done, problem = False, ""
        try:
            done = fetch.receive()
        except FetchError as error:
            problem = str(error)
        except OSError as error:
            self._end_fetch()
            self._fail(error)
            return
        if done or problem:
            self._end_fetch()
            self._send({"op": "fetched", "problem": problem})
        elif time.monotonic() - self._reported > _PROGRESS_SECONDS:
            self._reported = time.monotonic()
            self._send({"op": "fetching", "bytes": fetch.received})

    def _end_fetch(self) -> None:
        if self._fetch is not None:
            self._fetch.close()
            self._fetch = None

    def _on_start(self, header: dict[str, Any], payload: memoryview) -> None:
        # Before the keeper, which is a copy of this process, would inherit its sockets.
        self._on_unshare(header, payload)
        spec = header["spec"]
        cwd = f"{self._home}/{spec['cwd']}"
        if not os.path.isdir(cwd):
            self._send({"op": "error", "kind": "directory", "message": "there is no such directory", "path": cwd})
            return
        started = keeper.start(f"{self._runs}/{spec['run']}", {**spec, "cwd": cwd})
        self._send({"op": "started", "already": not started})
        self._forget_runs()

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
        outcome = keeper.outcome(directory) if known else None
        self._send({"op": "status", "known": known, "outcome": outcome})

    def _on_read(self, header: dict[str, Any], payload: memoryview) -> None:
        data = b""
        with contextlib.suppress(OSError), open(f"{self._runs}/{header['run']}/{keeper.OUTPUT}", "rb") as output:
            output.seek(header["offset"])
            data = output.read(_SEND_BYTES)
        self._send({"op": "output", "offset": header["offset"]}, data)

    def _on_holders(self, header: dict[str, Any], payload: memoryview) -> None:
        patterns = header["devices"]
        found = processes.holders(patterns)
        if header["stop"] and found:
            processes.end(lambda: [pid for pid, _, _ in processes.holders(patterns)], header["grace"])
        left = processes.holders(patterns) if header["stop"] else []
        self._send({"op": "holders", "found": found, "left": left})

    @property
    def _runs(self) -> str:
        return f"{self._root}/runs"

    def _follow(self) -> bool:
        """Queue more of the run's output, or its end; return whether there was something."""
        if self._run is None or self._out:
            return bool(self._out)
        outcome = keeper.outcome(self._run)
        with contextlib.suppress(OSError):
            if self._output < 0:
                self._output = os.open(f"{self._run}/{keeper.OUTPUT}", os.O_RDONLY)
            data = os.pread(self._output, _SEND_BYTES, self._offset)
            if data:
                self._send({"op": "output", "offset": self._offset}, data)
                self._offset += len(data)
                return True
        if outcome is None:
            return False
        if outcome["why"] == "lost":
            # The keeper was killed; end what it can no longer end.
            keeper.ask_to_stop(self._run)
        # Read the outcome before the output: so all output was there when nothing more was found.
        self._send({"op": "exit", **outcome})
        self._run = None
        return True

    def _send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        self._out += encode(header, payload)

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._out:
                sent = os.write(1, self._out)
                del self._out[:sent]

    def _forget_runs(self) -> None:
        """Remove the records of runs that ended long ago."""
        for each in os.scandir(self._runs):
            with contextlib.suppress(OSError):
                old = time.time() - each.stat().st_mtime > _RUN_RECORD_SECONDS
                if old and not keeper.is_running(each.path):
                    import shutil

                    shutil.rmtree(each.path, ignore_errors=True)


def main() -> None:
    """Serve the client at standard input and output."""
    server = Server()
    try:
        server.serve()
    except (BrokenPipeError, ConnectionResetError):
        pass
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
    finally:
        server.close()
