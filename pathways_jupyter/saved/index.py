"""The index of a save: what its variables are, and in which files their arrays are, with the bucket's checksums.

Everyone who may write to the bucket may write it too, so all of it is input: it has a size, its numbers are finite, and
no text of it is a path or is run. Whatever is wrong with it is one error, which says that the save is damaged.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.sentences import advice

FORMAT = 1
LARGEST_BYTES = 64 << 20
MOST_ARRAYS = 100_000
_CONTENT = re.compile(r"[0-9a-f]{32}")
_LARGEST_FILE_BYTES = 1 << 60
_LATEST = 7_258_118_400.0
"""The year 2200, in seconds since 1970: Python and browsers can show all times until then."""
_LONGEST_NOTEBOOK = 4096
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that reading a hostile description may raise."""


@dataclass(frozen=True)
class Index:
    """The description of a save.

    Attributes:
      content: The directory with the files of its arrays, beside it.
      saved: When, in seconds since 1970.
      notebook: Path of the notebook that saved it; empty if it was none.
      variables: Their descriptions (:mod:`.values`) by name.
      arrays: Their descriptions (:mod:`.arrays`).
      files: Size and checksum of each file, as the bucket gives them.
    """

    content: str
    saved: float
    notebook: str
    variables: Mapping[str, Any]
    arrays: list[Any]
    files: Mapping[str, list[Any]]

    @property
    def nbytes(self) -> int:
        """Bytes of its files."""
        return sum(size for size, _ in self.files.values())

    def encode(self) -> bytes:
        """Return it as it is written."""
        return json.dumps({"format": FORMAT, **vars(self)}).encode()

    @classmethod
    def parse(cls, name: str, data: bytes) -> Index:
        """Read the index of the save `name`.

        Raises:
          PathwaysError: It is damaged, or of another version.
        """
        try:
            index = json.loads(data) if len(data) <= LARGEST_BYTES else None
            if isinstance(index, dict) and type(index["format"]) is int and index["format"] != FORMAT:
                number = index["format"] if abs(index["format"]) < 1000 else "unknown"
                raise PathwaysError(
                    f"{name} was saved in format {number}, and this version reads {FORMAT}.",
                    hint="Load it with the version of pathways_jupyter that saved it, or a later one.",
                )
            if (
                isinstance(index, dict)
                and type(index["format"]) is int
                and is_content(index["content"])
                and type(index["saved"]) in (int, float)
                and 0 <= index["saved"] <= _LATEST
                and isinstance(index["notebook"], str)
                and len(index["notebook"]) <= _LONGEST_NOTEBOOK
                and isinstance(index["variables"], dict)
                and all(map(is_name, index["variables"]))
                and isinstance(index["arrays"], list)
                and len(index["arrays"]) <= MOST_ARRAYS
                and isinstance(index["files"], dict)
                and all(map(_is_file, index["files"].values()))
            ):
                return cls(
                    index["content"],
                    float(index["saved"]),
                    index["notebook"],
                    index["variables"],
                    index["arrays"],
                    index["files"],
                )
        except UNREADABLE:
            pass
        raise damaged(name, "its index cannot be read")


def is_name(name: str) -> bool:
    """Return whether a variable may have this name."""
    return name.isidentifier() and not keyword.iskeyword(name)


def is_content(name: object) -> bool:
    """Return whether a directory may be one with the files of arrays."""
    return isinstance(name, str) and _CONTENT.fullmatch(name) is not None


def _is_file(value: Any) -> bool:
    size, checksum = value
    return type(size) is int and 0 <= size <= _LARGEST_FILE_BYTES and isinstance(checksum, str)


def damaged(name: str, why: str) -> PathwaysError:
    """Return the error of a save that cannot be read."""
    return PathwaysError(f"{name} is damaged: {why}.", hint=advice("{saved:delete {name}} removes it.", name=name))
