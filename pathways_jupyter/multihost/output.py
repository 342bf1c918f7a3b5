"""The output of one host: kept byte for byte in a file, and cut into lines for the screen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from pathways_jupyter.multihost.errors import MultihostError

_LONGEST_LINE = 64 * 1024
_TAIL_BYTES = 64 * 1024
_LAST_LINES = 20
"""In how many lines one that is not empty is looked for."""
_TAIL_LINE_BYTES = 200
_CHUNK_BYTES = 256 * 1024
_POLL_SECONDS = 0.25


class HostLog:
    """A file that holds exactly the bytes that the host has sent, so its size is where to continue.

    Args:
      fresh: Begin a new file.

    Raises:
      MultihostError: The file cannot be written.
    """

    def __init__(self, path: Path, *, fresh: bool) -> None:
        self.path = path
        self.last_line = "" if fresh else last_line(path)
        self._partial = b""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if fresh else 0), 0o644)
            self.size = os.lseek(self._file, 0, os.SEEK_END)
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
                view = view[os.write(self._file, view) :]
            except OSError as error:
                raise MultihostError(f"{self.path} cannot be written: {error.strerror}.") from error
        self.size += len(data)
        *whole, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LONGEST_LINE:
            whole.append(self._partial)
            self._partial = b""
        return self._texts(whole)

    def close(self) -> tuple[str, ...]:
        """Close the file; return the last line if it has no end."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        rest, self._partial = [self._partial] if self._partial else [], b""
        return self._texts(rest)

    def _texts(self, lines: list[bytes]) -> tuple[str, ...]:
        texts = tuple(map(_text, lines))
        self.last_line = next((text for text in reversed(texts) if text.strip()), self.last_line)
        return texts


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a log; none if there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - max(_TAIL_BYTES, lines * _TAIL_LINE_BYTES)))
            found = file.read().decode(errors="replace").split("\n")
    except OSError:
        return []
    whole = found[:-1] if found[-1] == "" else found
    return [line.rstrip("\r").rpartition("\r")[2] for line in whole[max(0, len(whole) - lines) :]]


def last_line(path: Path) -> str:
    """Return the newest line of a log that is not empty; an empty string if there is none."""
    return next((line for line in reversed(tail(path, _LAST_LINES)) if line.strip()), "")


async def lines(path: Path, last: int, growing: Callable[[], bool]) -> AsyncGenerator[str, None]:
    """Yield the `last` lines of a log, then new ones as long as it is `growing`; none if there is no such file.

    Args:
      growing: Called in another thread.
    """
    position, partial = await asyncio.to_thread(_start, path, last), b""
    while True:
        # Asked before reading, so that what is written until then is not missed.
        more = await asyncio.to_thread(growing)
        while data := await asyncio.to_thread(_read, path, position):
            position += len(data)
            *whole, partial = (partial + data).split(b"\n")
            if len(partial) > _LONGEST_LINE:
                whole, partial = [*whole, partial], b""
            for line in whole:
                yield _text(line)
        if not more:
            break
        await asyncio.sleep(_POLL_SECONDS)
    if partial:
        yield _text(partial)


def _start(path: Path, last: int) -> int:
    """Return where the `last` lines of a log begin; 0 if there is no such file yet."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - max(_TAIL_BYTES, last * _TAIL_LINE_BYTES)))
            found = file.read().split(b"\n")
    except OSError:
        return 0
    whole = len(found) - (not found[-1])
    return size - len(b"\n".join(found[max(0, whole - last) :]))


def _read(path: Path, position: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(_CHUNK_BYTES)
    except OSError:
        return b""


def _text(line: bytes) -> str:
    # Of a progress bar that redraws its line with carriage returns, the last state is what counts.
    return line[:_LONGEST_LINE].decode(errors="replace").rstrip("\r").rpartition("\r")[2]
