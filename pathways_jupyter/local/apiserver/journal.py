"""The store on disk: a file of JSON lines, appended to on every change and compacted now and then.

A line is in the kernel's hands before the change is answered, so it outlives the process (not the machine). A last
line that was cut short by a kill is dropped when the file is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.apiserver.watch_delivery import ObjectState

Place = tuple[tuple[str, str], str, str]
"""Type key, namespace and name of an object."""


@dataclass(frozen=True)
class JournalEntry:
    """One line: an object's new state, or its last one if it was deleted."""

    revision: int
    place: Place
    object: dict[str, Any]
    deleted: bool


class Journal:
    """The file, open for appending; :meth:`read` comes before the first change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open(path, "ab")
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
                    place = ((group, plural), namespace, name)
                    entries.append(JournalEntry(int(read["rev"]), place, read["object"], "deleted" in read))
            except (ValueError, KeyError, TypeError) as error:
                raise LocalClusterError(
                    f"{self._path}, line {number} cannot be read: {error}.",
                    hint="End the embedded cluster and start it again.",
                ) from error
            good += len(line) + 1
        if good < len(data):
            os.truncate(self._path, good)
        self.lines = len(entries)
        return base, entries

    def append(self, revision: int, place: Place, record: ObjectState, *, deleted: bool) -> None:
        """Append one change."""
        self._file.write(_line(revision, place, record, deleted))
        self._file.flush()
        self.lines += 1

    def rewrite(self, revision: int, places: Sequence[tuple[Place, ObjectState]]) -> None:
        """Replace the file by one with only the objects that exist at `revision`."""
        draft = self._path.with_suffix(".draft")
        file = _open(draft, "wb")
        file.write(json.dumps({"base": revision}).encode() + b"\n")
        for place, record in places:
            file.write(_line(int(record.object["metadata"]["resourceVersion"]), place, record, False))
        file.flush()
        os.replace(draft, self._path)
        self._file.close()
        self._file, self.lines = file, len(places)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _open(path: Path, mode: Literal["ab", "wb"]) -> BinaryIO:
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def _line(revision: int, place: Place, record: ObjectState, deleted: bool) -> bytes:
    (group, plural), namespace, name = place
    head = json.dumps({"rev": revision, "at": [group, plural, namespace, name]}, separators=(",", ":"))
    mark = ',"deleted":true' if deleted else ""
    return b'%s%s,"object":%s}\n' % (head[:-1].encode(), mark.encode(), record.encoded)
