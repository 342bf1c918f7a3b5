"""Make a run directory hold what a manifest describes; only what the host does not have crosses the connection.

The manifest lists ``[path, kind, mode, content, size]``: the content of a file is its hash, that of a link its target.
Every directory has a record of what was sent to it, with a stamp of each file. So a file that nothing has touched is
recognized without being read, and content that is in the directory of another run is copied from there.

What a connection brings is collected beside the directories first, each content under its hash, and is moved into place
only when all of it is here.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import select
import sys
import zlib
from collections import Counter
from stat import S_ISREG

from pathways_jupyter.multihost.remote.step import HOME, STATE, answer, remove_old

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Entry = tuple[str, str, int, str, int]
    Record = dict[str, list[Any]]
    """By path: the content, and the stamp of the file or link."""

FILE, LINK, DIRECTORY = "file", "link", "dir"

_OTHER_RUNS = 8
"""In how many directories of other runs content is looked for."""
_RECORD_SECONDS = 30 * 24 * 3600.0
_ARRIVED_SECONDS = 24 * 3600.0
"""Age at which files that a killed program has received are removed; none works so long."""
_COPY_BYTES = 1024 * 1024
_SILENCE_SECONDS = 600.0
"""Longer than a client needs to make an archive."""


def synchronize(take: Callable[[], Any], directory: str, name: str) -> None:
    """Compare a directory with the manifest that the client sends, receive what is missing, and apply it.

    Args:
      take: Returns the next frame.
    """
    with Sync(STATE, name, f"{HOME}/{directory}", take()) as sync:
        answer(missing=sync.compare())
        stream = SizedInput(_input, take() if sync.missing else 0)
        try:
            if sync.missing:
                sync.receive(stream)
            sync.apply()
        finally:
            # To its end, because the client reads an error only when it has sent everything.
            while stream.read(_COPY_BYTES):
                pass
    answer()


def _input(size: int) -> bytes:
    """Read from standard input.

    Raises:
      EOFError: The client has gone.
    """
    readable, _, _ = select.select([0], [], [], _SILENCE_SECONDS)
    if not readable:
        sys.exit(0)
    data = os.read(0, size)
    if not data:
        raise EOFError
    return data


class SizedInput:
    """The next `size` bytes of what `read` returns, as a file."""

    def __init__(self, read: Callable[[int], bytes], size: int) -> None:
        self._read, self._left = read, size

    def read(self, size: int) -> bytes:
        """Return some of them, at most `size`; nothing at the end.

        Raises:
          ValueError: It has ended before.
        """
        if not self._left:
            return b""
        data = self._read(min(size, self._left))
        if not data:
            raise ValueError("not all files arrived")
        self._left -= len(data)
        return data


class Sync:
    """One synchronization: :meth:`compare`, then :meth:`receive` if something is missing, then :meth:`apply`.

    As a context manager it removes at the end what has arrived and is not in place.

    Args:
      state: The directory of this program's own files.
      name: Unique for the run and the host; an earlier program whose connection was lost may still be at work.
      directory: The run directory; it need not exist.
      keeps: Whether files stay that were changed there, and not at the client since they were sent.

    Raises:
      ValueError: An entry leads out of the directory.
    """

    def __init__(self, state: str, name: str, directory: str, entries: Sequence[Entry], *, keeps: bool = False) -> None:
        for path, kind, _, content, _ in entries:
            parts = path.split("/")
            end = os.path.normpath(os.path.join(os.path.dirname(path), content)) if kind == LINK else path
            if "" in parts or ".." in parts or end.split("/")[0] in {"", ".."}:
                raise ValueError(f"{path!r} leads out of the directory")
        self._records, self._incoming = f"{state}/records", f"{state}/incoming"
        self._record = f"{self._records}/{os.path.basename(directory)}.json"
        self._arrived = f"{self._incoming}/{name}.{os.getpid()}"
        self._directory, self._entries, self._keeps = directory, entries, keeps
        self._before = _read(self._record)[1]
        self._now: Record = {}
        self._sources: dict[str, tuple[str, list[Any]]] = {}
        self.missing: list[str] = []

    def __enter__(self) -> Sync:
        os.makedirs(self._arrived, mode=0o700)
        return self

    def __exit__(self, *error: object) -> None:
        # Not shutil.rmtree(): importing shutil takes longer than all of this.
        with contextlib.suppress(OSError):
            for each in os.listdir(self._arrived):
                os.unlink(f"{self._arrived}/{each}")
            os.rmdir(self._arrived)

    def compare(self) -> list[str]:
        """Return the contents that are missing on this host, each once, in the order of the manifest."""
        for path, kind, mode, content, size in self._entries:
            stamp = _stamp(f"{self._directory}/{path}")
            if self._before.get(path) == [content, *stamp] and (kind == LINK or stamp[2] & 0o777 == mode):
                self._now[path] = [content, *stamp]
            elif self._keeps and kind == FILE and S_ISREG(stamp[2]):
                sent = self._before.get(path)
                if sent is not None and sent[0] == content:
                    # With its old stamp: it is no source of this content.
                    self._now[path] = sent
                elif stamp[1] == size and _is(f"{self._directory}/{path}", content):
                    self._now[path] = [content, *stamp]
        entries = {
            content: None for path, kind, _, content, _ in self._entries if kind == FILE and path not in self._now
        }
        records = [self._record]
        with contextlib.suppress(FileNotFoundError):
            earlier = sorted(os.scandir(self._records), key=lambda each: each.stat().st_mtime, reverse=True)
            records += [each.path for each in earlier if each.path != self._record][:_OTHER_RUNS]
        for record in records:
            if len(self._sources) == len(entries):
                break
            directory, files = _read(record)
            for path, (content, *stamp) in files.items():
                if content in entries and content not in self._sources and _stamp(f"{directory}/{path}") == stamp:
                    self._sources[content] = (f"{directory}/{path}", stamp)
        self.missing = [each for each in entries if each not in self._sources]
        return self.missing

    def receive(self, stream: Any) -> None:
        """Keep what is missing, which `stream` brings compressed with gzip, one content after another.

        Raises:
          OSError: A file cannot be written.
          ValueError: Something else has arrived.
          EOFError: The stream has ended early.
        """
        sizes = {content: size for _, _, _, content, size in self._entries}
        with gzip.GzipFile(fileobj=stream) as contents:
            try:
                for content in self.missing:
                    self._keep(content, SizedInput(contents.read, sizes[content]).read)
                more = contents.read(1)
            except (gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(f"the files arrived damaged ({error})") from error
        if more:
            raise ValueError("more arrived than was requested")

    def apply(self) -> int:
        """Change the directory; return how many files were written. Files that were not sent to it are left alone.

        Raises:
          OSError: A file cannot be written, or a link on this host leads out of the directory: the first of them. All
            others are written.
        """
        for content, (path, stamp) in self._sources.items():
            with open(path, "rb", buffering=0) as file:
                # A copy, not a hard link: a command that changes its files in place must not change another run's.
                self._keep(content, file.read)
            if _stamp(path) != stamp:
                raise OSError(errno.ESTALE, "a file that this one is a copy of was changed just now; run again", path)
        os.makedirs(self._directory, exist_ok=True)
        self._remove_stale()
        written = 0
        failed: list[OSError] = []
        made: set[str] = set()
        uses = Counter(content for path, kind, _, content, _ in self._entries if path not in self._now)
        for path, kind, mode, content, _ in self._entries:
            target = f"{self._directory}/{path}"
            if path in self._now or (kind == DIRECTORY and os.path.isdir(target)):
                continue
            uses[content] -= 1
            try:
                self._make_folder(target if kind == DIRECTORY else os.path.dirname(target), made)
                if kind == DIRECTORY:
                    continue
                if kind == LINK:
                    scratch = f"{self._arrived}/link"
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(scratch)
                    os.symlink(content, scratch)
                else:
                    scratch = f"{self._arrived}/{content}"
                    if uses[content]:
                        with open(scratch, "rb", buffering=0) as file:
                            scratch = self._keep(f"{content}.copy", file.read)
                    os.chmod(scratch, mode)
                _move(scratch, target)
            except OSError as error:
                # Such as a file where a command has made a directory. The others are not to be old for that.
                failed.append(OSError(error.errno, error.strerror, path))
                continue
            self._now[path] = [content, *_stamp(target)]
            written += 1
        os.makedirs(self._records, mode=0o700, exist_ok=True)
        scratch = f"{self._record}.{os.getpid()}"
        with open(scratch, "w") as record:
            record.write(json.dumps({"directory": self._directory, "files": self._now}))
        os.replace(scratch, self._record)
        remove_old(self._records, _RECORD_SECONDS)
        remove_old(self._incoming, _ARRIVED_SECONDS)
        if failed:
            raise failed[0]
        return written

    def _make_folder(self, folder: str, made: set[str]) -> None:
        if folder not in made:
            # A command may have put a link where the manifest has a folder. It is followed, but not to elsewhere.
            if not self._contains(folder):
                raise OSError(errno.EPERM, "a link on this host leads out of the run directory", folder)
            os.makedirs(folder, exist_ok=True)
            made.add(folder)

    def _keep(self, content: str, read: Callable[[int], bytes]) -> str:
        """Write what `read` returns, and return the path."""
        path = f"{self._arrived}/{content}"
        with open(path, "wb", buffering=0) as file:
            while data := memoryview(read(_COPY_BYTES)):
                while data:
                    data = data[file.write(data) :]
        return path

    def _remove_stale(self) -> None:
        """Remove what was sent before and is not any more, and the folders that are empty then."""
        sent = {path for path, kind, *_ in self._entries if kind != DIRECTORY}
        for path in sorted(set(self._before) - sent, reverse=True):
            if not self._contains(os.path.dirname(f"{self._directory}/{path}")):
                continue
            with contextlib.suppress(OSError):
                os.unlink(f"{self._directory}/{path}")
                while path := os.path.dirname(path):
                    os.rmdir(f"{self._directory}/{path}")

    def _contains(self, folder: str) -> bool:
        root = os.path.realpath(self._directory)
        return os.path.commonpath((root, os.path.realpath(folder))) == root


def _move(source: str, target: str) -> None:
    """Replace `target` by `source` in one step."""
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The directory is on another file system than the home directory.
        import shutil

        scratch = f"{os.path.dirname(target)}/.pathways.{os.getpid()}.partial"
        shutil.copy2(source, scratch, follow_symlinks=False)
        os.replace(scratch, target)


def _read(path: str) -> tuple[str, Record]:
    """Return the directory of a record, and its files; nothing if there is none."""
    try:
        with open(path) as file:
            record = json.load(file)
        return record["directory"], record["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return "", {}


def _is(path: str, content: str) -> bool:
    """Return whether a file has this content, as one that was written here and then brought to the client."""
    import hashlib

    found = hashlib.blake2b(digest_size=len(content) // 2)
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_COPY_BYTES):
            found.update(data)
    return found.hexdigest() == content


def _stamp(path: str) -> list[int]:
    """Return what changes when a file is changed, also by a program that sets its time back; zeros without a file."""
    try:
        status = os.lstat(path)
    except OSError:
        return [0, 0, 0, 0, 0]
    return [status.st_mtime_ns, status.st_size, status.st_mode, status.st_ino, status.st_ctime_ns]
