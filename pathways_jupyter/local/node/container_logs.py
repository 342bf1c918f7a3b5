"""Container output, kept on disk in bounded space, and readable while it grows.

Container output comes through a pipe rather than going straight into a file: so each line gets the time at which it
was written, a flood cannot fill the disk, and a follower is woken instead of polling.

On disk a line is ``<time> F <text>``; ``P`` in place of ``F`` marks a piece that no line end followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

LIMIT = 10 * 1024 * 1024
"""Bytes per file; one older file is kept beside the current one."""

_PIECE = 16 * 1024
_BLOCK = 256 * 1024
_ENTRY = re.compile(rb"(?m)^(\S+ )(?:F ([^\n]*\n)|P ([^\n]*)\n)")


class ContainerLog(asyncio.Protocol):
    """The output of one instance of a container; connect it to the reading end of a pipe.

    Args:
      path: The current file; the older one has ``.1`` appended.
      limit: Bytes after which a new file begins.
    """

    def __init__(self, path: Path, *, limit: int = LIMIT) -> None:
        self._path = path
        self._older = path.with_name(f"{path.name}.1")
        self._limit = limit
        self._rest = b""
        self._generation = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._file = path.open("ab", buffering=0)
        self._size = 0
        self.ended = asyncio.Event()

    async def connect(self, pipe: int) -> None:
        """Take over the reading end of a pipe and keep what arrives until its end."""
        await asyncio.get_running_loop().connect_read_pipe(lambda: self, os.fdopen(pipe, "rb", buffering=0))

    def data_received(self, data: bytes) -> None:
        """Write complete lines; the piece after the last line end waits for the rest of its line."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        time = _format(datetime.now(UTC))
        entries = [b"%s F %s\n" % (time, line) for line in lines]
        # A program that ends no line must not fill the memory.
        while len(self._rest) >= _PIECE:
            entries.append(b"%s P %s\n" % (time, self._rest[:_PIECE]))
            self._rest = self._rest[_PIECE:]
        self._write(b"".join(entries))

    def connection_lost(self, exc: Exception | None) -> None:
        """End of file: no process has the writing end open any more."""
        self.close()

    def close(self) -> None:
        """End the log; followers read what is left and stop."""
        if self.ended.is_set():
            return
        if self._rest:
            self._write(b"%s P %s\n" % (_format(datetime.now(UTC)), self._rest))
            self._rest = b""
        self._file.close()
        self.ended.set()
        # After `ended` is set, at which followers look next.
        self._wake()

    def remove(self) -> None:
        """End the log and remove its files."""
        self.close()
        for path in (self._older, self._path):
            path.unlink(missing_ok=True)

    async def read(
        self, *, follow: bool = False, tail: int | None = None, since: float | None = None, timestamps: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the output in pieces; for the arguments see
        :meth:`~pathways_jupyter.local.apiserver.pod_subresources.PodRuntime.logs`.
        """
        generation = self._generation
        files: list[IO[bytes]] = []
        for path in (self._older, self._path):
            with contextlib.suppress(FileNotFoundError):
                files.append(path.open("rb"))
        try:
            skip = 0
            if tail is not None:
                # Counted first: the last lines may lie in either file.
                for file in files:
                    while block := file.read(_BLOCK):
                        skip += block.count(b"\n")
                    file.seek(0)
                skip = max(0, skip - tail)
            first = _format(datetime.fromtimestamp(since, UTC)) if since is not None else b""
            for file in files:
                async for entries in self._entries(file, generation, follow=follow and file is files[-1]):
                    if skip:
                        dropped = min(skip, len(entries))
                        entries, skip = entries[dropped:], skip - dropped
                    if first:
                        entries = [entry for entry in entries if entry >= first]
                    if entries:
                        yield _ENTRY.sub(rb"\1\2\3" if timestamps else rb"\2\3", b"".join(entries))
        finally:
            for file in files:
                file.close()

    async def _entries(self, file: IO[bytes], generation: int, *, follow: bool) -> AsyncIterator[list[bytes]]:
        opened = None
        try:
            while True:
                if block := file.read(_BLOCK):
                    if not block.endswith(b"\n"):
                        block += file.readline()
                    yield [line + b"\n" for line in block.split(b"\n")[:-1]]
                elif not follow:
                    return
                elif generation != self._generation:
                    # The file was replaced while it was followed, and has been read to its end: go on with the new one.
                    with contextlib.suppress(OSError):
                        file = self._path.open("rb")
                        if opened is not None:
                            opened.close()
                        opened = file
                    generation = self._generation
                elif self.ended.is_set():
                    return
                else:
                    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    # Nothing was awaited since the file was read to its end: what is written from here on wakes this.
                    self._waiting.add(woken)
                    try:
                        await woken
                    finally:
                        self._waiting.discard(woken)
        finally:
            if opened is not None:
                opened.close()

    def _write(self, data: bytes) -> None:
        if self.ended.is_set() or not data:
            return
        if self._size and self._size + len(data) > self._limit:
            self._file.close()
            self._path.replace(self._older)
            self._file = self._path.open("ab", buffering=0)
            self._generation += 1
            self._size = 0
        # A full disk must cost log lines, not the pods.
        with contextlib.suppress(OSError):
            self._file.write(data)
        self._size += len(data)
        self._wake()

    def _wake(self) -> None:
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(None)


def _format(time: datetime) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
