"""Text files that users make, with any editor and on any system.

They are read as the tools read them that they are made for: kubectl and pip take UTF-8, and UTF-16 behind a byte order
mark, which is what ``>`` writes in Windows PowerShell; pip also takes the encoding that a comment names, as in Python's
sources; for git, the lines of an ignore file are the bytes of file names.
"""

from __future__ import annotations

import codecs
import io
import re
from pathlib import Path

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_CODING = re.compile(rb"#.*?coding[:=]\s*([-\w.]+)")


def read(path: Path, *, names_encoding: bool = False, names_files: bool = False) -> str:
    """Return the text of a file, with ends of lines as in Python.

    Args:
      names_encoding: Whether one of the first two lines may name the encoding, in a comment.
      names_files: Whether what is not UTF-8 is kept, as in the names that :mod:`os` returns.

    Raises:
      OSError: It cannot be read.
      ValueError: It is not text; says what it is not.
    """
    data = path.read_bytes()
    named = _named(data) if names_encoding else ""
    return decode(data, named or "utf-8", errors="surrogateescape" if names_files else "strict")


def decode(data: bytes, encoding: str = "utf-8", *, errors: str = "strict") -> str:
    """Return the text of `data`, with ends of lines as in Python; a byte order mark counts more than `encoding`.

    Raises:
      ValueError: It is not text; says what it is not.
    """
    encoding = next((of_mark for mark, of_mark in _MARKS.items() if data.startswith(mark)), encoding)
    try:
        text = io.TextIOWrapper(io.BytesIO(data), encoding, errors).read()
    except (UnicodeError, LookupError) as error:
        raise ValueError(f"it is not text in {encoding.upper().removesuffix('-SIG')}") from error
    # UTF-16 without its mark is valid UTF-8 otherwise, with one of these between any two letters.
    if "\0" in text:
        raise ValueError("it has NUL characters, as no text has")
    return text


def _named(data: bytes) -> str:
    """Return the encoding that a comment in the first two lines names; empty if there is none."""
    matches = (_CODING.match(line) for line in data.split(b"\n", 2)[:2])
    return next((each[1].decode("ascii", "replace") for each in matches if each), "")
