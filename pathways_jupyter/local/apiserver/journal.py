"""The store on disk: a file of JSON lines, appended to on every change and compacted now and then.

A line is in the kernel's hands before the change is answered, so it outlives the process (not the machine). A last
line that was cut short by a kill is dropped when the file is read.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.apiserver.watch_delivery import Record

Place = tuple[tuple[str, str], str, str]
"""Type key, namespace and name of an object."""


@dataclass(frozen=True)
class Entry:
    """One line: an object's new state, or its last one if it was deleted."""

    revision: int
    place: Place
    object: dict[str, Any]
    deleted: bool


class Journal:
    """The file. Opened by :meth:`read`, which must be called first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self.lines = 0

    def read(self) -> tuple[int, list[Entry]]:
        """Open the file for appending and read its entries.

        Returns:
          The revision at which the file begins, i.e. before which nothing is remembered, and its entries in order.

        Raises:
          LocalClusterError: A line other than the last is damaged.
        """
        entries: list[Entry] = []
        base = good = 0
        with contextlib.suppress(FileNotFoundError):
            data = self._path.read_bytes()
            lines = data.split(b"\n")
            for number, line in enumerate(lines[:-1], 1):
                try:
                    base = self._take(json.loads(line), entries, base)
                except (ValueError, KeyError, TypeError) as error:
                    raise LocalClusterError(
                        f"{self._path}, line {number} cannot be read: {error}.",
                        hint="End the embedded cluster and start it again.",
                    ) from error
                good += len(line) + 1
            if good < len(data):
                os.truncate(self._path, good)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.lines = len(entries)
        return base, entries

    def append(self, revision: int, place: Place, record: Record, *, deleted: bool) -> None:
        """Append one change."""
        _write_all(self._file, _line(revision, place, record, deleted))
        self.lines += 1

    def rewrite(self, revision: int, places: Iterable[tuple[Place, Record]]) -> None:
        """Replace the file by one with only the objects that exist at `revision`."""
        draft = self._path.with_suffix(".draft")
        file = os.open(draft, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC, 0o600)
        lines = [json.dumps({"base": revision}).encode() + b"\n"]
        lines += [
            _line(int(record.object["metadata"]["resourceVersion"]), place, record, False) for place, record in places
        ]
        _write_all(file, b"".join(lines))
        os.replace(draft, self._path)
        os.close(self._file)
        self._file, self.lines = file, len(lines) - 1

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @staticmethod
    def _take(line: dict[str, Any], entries: list[Entry], base: int) -> int:
        if "base" in line:
            return int(line["base"])
        group, plural, namespace, name = line["at"]
        entries.append(Entry(int(line["rev"]), ((group, plural), namespace, name), line["object"], "deleted" in line))
        return base


def _line(revision: int, place: Place, record: Record, deleted: bool) -> bytes:
    (group, plural), namespace, name = place
    head = json.dumps({"rev": revision, "at": [group, plural, namespace, name]}, separators=(",", ":"))
    mark = ',"deleted":true' if deleted else ""
    return b'%s%s,"object":%s}\n' % (head[:-1].encode(), mark.encode(), record.encoded)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
