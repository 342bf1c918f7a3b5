"""The store on disk: a file of JSON lines, appended to on every change and compacted now and then.

A line is in the kernel's hands before the change is answered, so it outlives the process (not the machine). A last
line that was cut short by a kill is dropped when the file is read.

A disk may be full, and clients then have to delete what they created. So some space is kept in reserve: where it is
used up nothing is created any more, while other changes still fit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.apiserver.watch_delivery import ObjectState

JournalKey = tuple[tuple[str, str], str, str]
"""Type key, namespace and name of an object."""

_RESERVE_BYTES = 512 * 1024
"""Enough for what follows when a session's proxy and some pods are deleted: each change is a line of 1 to 8 kB."""


@dataclass(frozen=True)
class JournalEntry:
    """One line: an object's new state, or its last one if it was deleted."""

    revision: int
    key: JournalKey
    object: dict[str, Any]
    deleted: bool


class Journal:
    """The file, open for appending; :meth:`read` comes before the first change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reserve = path.with_suffix(".reserve")
        self._file = _open(path)
        self._size = os.path.getsize(path)
        self.lines = 0

    def read(self) -> tuple[int, list[JournalEntry]]:
        """Read the file, and remove a last line that was cut short.

        Returns:
          The revision at which the file begins, i.e. before which nothing is remembered, and its entries in order.

        Raises:
          LocalClusterError: A line other than the last is damaged.
        """
        entries: list[JournalEntry] = []
        base = good = 0
        data = self._path.read_bytes()
        for number, line in enumerate(data.split(b"\n")[:-1], 1):
            try:
                read = json.loads(line)
                if "base" in read:
                    base = int(read["base"])
                else:
                    group, plural, namespace, name = read["at"]
                    key = ((group, plural), namespace, name)
                    entries.append(JournalEntry(int(read["rev"]), key, read["object"], "deleted" in read))
            except (ValueError, KeyError, TypeError) as error:
                raise LocalClusterError(
                    f"{self._path}, line {number} cannot be read: {error}.",
                    hint="End the embedded cluster and start it again.",
                ) from error
            good += len(line) + 1
        if good < len(data):
            os.truncate(self._path, good)
        self._size = good
        self.lines = len(entries)
        return base, entries

    def append(self, revision: int, key: JournalKey, record: ObjectState, *, created: bool, deleted: bool) -> None:
        """Append one change.

        Raises:
          OSError: It cannot be written, for example because the disk is full; the file is as it was.
        """
        line = _line(revision, key, record, deleted)
        if created:
            self._keep_reserve()
        try:
            self._write(line)
        except OSError:
            if created or not self._reserve.exists():
                raise
            self._reserve.unlink()
            self._write(line)
        self.lines += 1

    def rewrite(self, revision: int, records: Sequence[tuple[JournalKey, ObjectState]]) -> None:
        """Replace the file by one with only the objects that exist at `revision`.

        Raises:
          OSError: It cannot be written; the file is as it was.
        """
        draft = self._path.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        file = _open(draft)
        lines = [json.dumps({"base": revision}).encode() + b"\n"]
        for key, record in records:
            lines.append(_line(int(record.object["metadata"]["resourceVersion"]), key, record, False))
        try:
            _write_all(file, b"".join(lines))
        except OSError:
            file.close()
            draft.unlink()
            raise
        os.replace(draft, self._path)
        self._file.close()
        self._file, self._size, self.lines = file, sum(map(len, lines)), len(records)

    def _write(self, line: bytes) -> None:
        try:
            _write_all(self._file, line)
        except OSError:
            # Some of it may be there, and the next line would follow in the middle.
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(line)

    def _keep_reserve(self) -> None:
        if self._reserve.exists():
            return
        try:
            self._reserve.write_bytes(bytes(_RESERVE_BYTES))
        except OSError:
            self._reserve.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _open(path: Path) -> FileIO:
    # Without a buffer, which would keep a line that could not be written, and write it with the next one.
    return open(path, "ab", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600))


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _line(revision: int, key: JournalKey, record: ObjectState, deleted: bool) -> bytes:
    (group, plural), namespace, name = key
    head = json.dumps({"rev": revision, "at": [group, plural, namespace, name]}, separators=(",", ":"))
    mark = ',"deleted":true' if deleted else ""
    return b'%s%s,"object":%s}\n' % (head[:-1].encode(), mark.encode(), record.encoded)
