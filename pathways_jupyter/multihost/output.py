"""The output of one host: kept byte for byte in a file, and cut into lines for the screen."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from pathways_jupyter.multihost.errors import MultihostError

_LONGEST_LINE = 64 * 1024
_TAIL_BYTES = 64 * 1024
_TAIL_LINE_BYTES = 200
_CHUNK_BYTES = 256 * 1024
_POLL_SECONDS = 0.25


class HostLog:
    """A new file that holds exactly the bytes that the host has sent, so its size is where to continue.

    It is locked while it is open, so that two runs never write the same one.

    Raises:
      MultihostError: The file cannot be written, or a run that goes on writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        self.last_line = ""
        self._lines = _Lines()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.truncate(0)
        except BlockingIOError as error:
            raise MultihostError(
                f"A run that goes on writes {path}.", hint="Choose another --run-name or --log-dir, or end that run."
            ) from error
        except OSError as error:
            raise MultihostError(
                f"{path} cannot be written: {error.strerror}.", hint="Choose another --log-dir."
            ) from error

    def add(self, data: bytes) -> tuple[str, ...]:
        """Append `data`; return the lines that are complete now.

        Raises:
          MultihostError: The file cannot be written, for instance because the disk is full.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[self._file.write(view) :]
            except OSError as error:
                raise MultihostError(
                    f"{self.path} cannot be written: {error.strerror}.",
                    hint="The run is ended. Free space there, or choose another --log-dir.",
                ) from error
        self.size += len(data)
        return self._seen(self._lines.add(data))

    def close(self) -> tuple[str, ...]:
        """Close the file; return the last line if it has no end."""
        self._file.close()
        return self._seen(self._lines.rest())

    def _seen(self, lines: tuple[str, ...]) -> tuple[str, ...]:
        self.last_line = next((line for line in reversed(lines) if line.strip()), self.last_line)
        return lines


class _Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self) -> None:
        self._partial = b""

    def add(self, data: bytes) -> tuple[str, ...]:
        *complete, self._partial = (self._partial + data).split(b"\n")
        return (*map(_text, complete), *(self.rest() if len(self._partial) > _LONGEST_LINE else ()))

    def rest(self) -> tuple[str, ...]:
        rest, self._partial = self._partial, b""
        return (_text(rest),) if rest else ()


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a log; none if there is no such file."""
    cutter = _Lines()
    read = [*cutter.add(_read(path, _start(path, lines))), *cutter.rest()]
    # It may have grown since.
    return read[max(0, len(read) - lines) :]


async def lines(path: Path, last: int, growing: Callable[[], bool]) -> AsyncGenerator[str, None]:
    """Yield the `last` lines of a log, then new ones as long as it is `growing`; none if there is no such file.

    Args:
      growing: Called in another thread.
    """
    position, cutter = await asyncio.to_thread(_start, path, last), _Lines()
    while True:
        # Called before reading, so that what is written until then is not missed.
        more = await asyncio.to_thread(growing)
        while data := await asyncio.to_thread(_read, path, position, _CHUNK_BYTES):
            position += len(data)
            for line in cutter.add(data):
                yield line
        if not more:
            break
        await asyncio.sleep(_POLL_SECONDS)
    for line in cutter.rest():
        yield line


def _start(path: Path, last: int) -> int:
    """Return where the `last` lines of a log begin; 0 if there is no such file yet."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max(_TAIL_BYTES, last * _TAIL_LINE_BYTES)))
            pieces = file.read().split(b"\n")
    except OSError:
        return 0
    complete = len(pieces) - (not pieces[-1])
    return size - len(b"\n".join(pieces[max(0, complete - last) :]))


def _read(path: Path, position: int, size: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(size)
    except OSError:
        return b""


def _text(line: bytes) -> str:
    # Of a progress bar that redraws its line with carriage returns, the last state is what counts.
    return line[:_LONGEST_LINE].decode(errors="replace").rstrip("\r").rpartition("\r")[2]
