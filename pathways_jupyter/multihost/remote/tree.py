"""Unpack a directory on a host: from what has just arrived, and from the directories of earlier runs.

Each unpacking leaves a record of what it wrote, with a stamp of every file. So content is known by its hash without a
second copy of it, as long as nothing has touched the file.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import time

from pathways_jupyter.multihost.remote.content_store import copy, hasher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from pathways_jupyter.multihost.remote.content_store import Store

    Entry = Sequence[Any]
    """``[kind, path, mode, hash or the link's target]``."""
    Record = dict[str, list[Any]]
    """Hash (or the link's target) and stamp by path."""

FILE, LINK, DIRECTORY = "file", "link", "dir"

_EARLIER_RUNS = 8
"""How many directories of other runs are searched for content."""
_RECORD_SECONDS = 30 * 24 * 3600.0


class Library:
    """What the directories of this and earlier runs hold, by hash.

    Args:
      records: Where the records are.
    """

    def __init__(self, records: str) -> None:
        self._records = records
        self._places: dict[str, tuple[str, list[Any]]] = {}
        self._unread: list[str] = []
        self._read: set[str] = set()

    def consider(self, directory: str) -> Record:
        """Search `directory` first, then those of the newest other runs; return the record of `directory`."""
        self._places, self._read, self._unread = {}, set(), []
        with contextlib.suppress(OSError):
            found = sorted(os.scandir(self._records), key=lambda each: each.stat().st_mtime, reverse=True)
            self._unread = [each.path for each in found if each.name.endswith(".json")][:_EARLIER_RUNS]
        return self._load(self._record_of(directory))

    def find(self, digest: str) -> str:
        """Return a file that has the content with this hash; empty if none is known."""
        while True:
            path, stamp = self._places.get(digest, ("", []))
            if path and _stamp(path) == stamp:
                return path
            self._places.pop(digest, None)
            if not self._unread:
                return ""
            self._load(self._unread.pop(0))

    def add(self, directory: str, record: Record) -> None:
        """Also search `directory`, which holds what `record` says."""
        for path, (digest, *stamp) in record.items():
            self._places.setdefault(digest, (f"{directory}/{path}", stamp))

    def write(self, directory: str, record: Record) -> None:
        """Keep the record of `directory`; forget those of long ago."""
        os.makedirs(self._records, exist_ok=True)
        path = self._record_of(directory)
        scratch = f"{path}.{os.getpid()}"
        with open(scratch, "w") as file:
            file.write(json.dumps({"directory": directory, "files": record}))
        os.replace(scratch, path)
        for each in os.scandir(self._records):
            with contextlib.suppress(OSError):
                if time.time() - each.stat().st_mtime > _RECORD_SECONDS:
                    os.unlink(each.path)

    def _record_of(self, directory: str) -> str:
        name = hasher(os.fsencode(directory), 16).hexdigest()
        return f"{self._records}/{name}.json"

    def _load(self, path: str) -> Record:
        if path in self._read:
            return {}
        self._read.add(path)
        try:
            with open(path) as file:
                found = json.load(file)
            record: Record = found["files"]
            self.add(found["directory"], record)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
        return record


def lacking(entries: Iterable[Entry], store: Store, library: Library, directory: str) -> list[str]:
    """Return the hashes of the contents that are neither in `store` nor in a directory of a run."""
    library.consider(directory)
    absent = store.lacking(content for kind, _, _, content in entries if kind == FILE)
    return [digest for digest in absent if not library.find(digest)]


def unpack(entries: Sequence[Entry], store: Store, library: Library, directory: str) -> int:
    """Make `directory` hold what `entries` describe, and return the number of files that were written.

    A new directory appears under its name only when it is complete. In one that exists, each file is replaced
    atomically, files of the previous unpacking that are no longer sent are removed, and all other files are left alone.

    Raises:
      OSError: A file cannot be written.
      ValueError: An entry leads out of the directory.
    """
    for _, path, *_ in entries:
        if not path or path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} leads out of the directory")
    before = library.consider(directory)
    if os.path.isdir(directory):
        written, now = _update(entries, store, library, directory, before)
        for path in sorted(set(before) - set(now), reverse=True):
            with contextlib.suppress(OSError):
                os.unlink(f"{directory}/{path}")
    else:
        parent, _, name = directory.rpartition("/")
        os.makedirs(parent, exist_ok=True)
        partial = f"{parent}/.{name}.{os.getpid()}.partial"
        try:
            os.mkdir(partial)
            written, now = _update(entries, store, library, partial)
            try:
                os.rename(partial, directory)
            except OSError:
                if not os.path.isdir(directory):
                    raise
                # Another host with the same home directory was faster.
                library.add(partial, now)
                written, now = _update(entries, store, library, directory, {})
        finally:
            if os.path.lexists(partial):
                import shutil

                shutil.rmtree(partial, ignore_errors=True)
    library.write(directory, now)
    return written


def _update(
    entries: Sequence[Entry], store: Store, library: Library, base: str, before: Record | None = None
) -> tuple[int, Record]:
    """Write the files that differ; return how many, and what is there now.

    Args:
      before: What was there; None for a new directory, which no one sees before it is complete.
    """
    # Strings, not Path objects: this is done for every file, and most of its time would be theirs.
    now: Record = {}
    written, made, scratch_names = 0, {base}, itertools.count()
    for kind, path, mode, content in entries:
        target = f"{base}/{path}"
        folder = target if kind == DIRECTORY else target.rpartition("/")[0]
        if folder not in made:
            os.makedirs(folder, exist_ok=True)
            made.add(folder)
        if kind == DIRECTORY:
            continue
        if before is None:
            _make(store, library, kind, mode, content, target)
        else:
            known = before.get(path)
            if known is not None and known == [content, *_stamp(target)]:
                now[path] = known
                continue
            scratch = f"{base}/.pathways.{os.getpid()}.{next(scratch_names)}.partial"
            try:
                _make(store, library, kind, mode, content, scratch)
                os.replace(scratch, target)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(scratch)
                raise
        written += 1
        now[path] = [content, *_stamp(target)]
        if kind == FILE:
            library.add(base, {path: now[path]})
    return written, now


def _make(store: Store, library: Library, kind: str, mode: int, content: str, path: str) -> None:
    """Make `path` a link, or a file with this content: moved from what has arrived, or else copied from another run."""
    if kind == LINK:
        os.symlink(content, path)
        return
    if not store.give(content, path):
        source = library.find(content)
        if not source:
            raise OSError(errno.ENOENT, "a file that this one is a copy of was changed just now; run again", path)
        # A copy, not a hard link: a command that changes its files in place must not change those of another run.
        copy(source, path)
    os.chmod(path, mode)


def _stamp(path: str) -> list[int]:
    """Return what changes when a file is changed, also by one who sets its time back; zeros without a file."""
    try:
        found = os.lstat(path)
    except OSError:
        return [0, 0, 0, 0, 0]
    return [found.st_mtime_ns, found.st_size, found.st_mode, found.st_ino, found.st_ctime_ns]
