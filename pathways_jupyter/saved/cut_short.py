"""Arrays in a bucket that no save names: a save that wrote them was cut short."""

from __future__ import annotations

import email.utils
from typing import Any

from pathways_jupyter.saved.index import is_content
from pathways_jupyter.saved.stored_save import NAME, NO_GENERATION, StoredSave

ABANDONED_SECONDS = 24 * 3600.0
"""Arrays written longer ago, and named by no index, belong to no save that runs."""

_Files = dict[str, float]
"""Paths of files, and the time of writing of each, in seconds since 1970."""


def find(bucket: Any, base: str, at: float | None) -> dict[tuple[str, str], list[str]]:
    """Return the paths of such arrays, by the name of their save and their directory in it.

    Args:
      bucket: As a file system.
      base: ``BUCKET/PATH`` of one user's saves.
      at: The present, in seconds since 1970; by default by the bucket's clock, as the times of its files.
    """
    before = (_now(bucket, base) if at is None else at) - ABANDONED_SECONDS
    left = _arrays(bucket, base)
    # Only now, so that a save that became whole meanwhile is named.
    for name in {name for name, _ in left}:
        generation, index = StoredSave(bucket, f"{base}/{name}", name).present()
        if index is not None:
            left.pop((name, index.content), None)
        elif generation != NO_GENERATION:
            # Damaged, or of another version, which may name any of them.
            left = {place: files for place, files in left.items() if place[0] != name}
    return {place: list(files) for place, files in left.items() if max(files.values()) < before}


def _now(bucket: Any, base: str) -> float:
    """Return the bucket's time, in seconds since 1970."""
    headers, _ = bucket.call("GET", "b/{}/o", base.partition("/")[0], maxResults=1)
    return email.utils.parsedate_to_datetime(headers["Date"]).timestamp()


def _arrays(bucket: Any, base: str) -> dict[tuple[str, str], _Files]:
    """Return the files of arrays below `base`, by the name of the save and the directory in it."""
    files: dict[tuple[str, str], _Files] = {}
    for path, info in bucket.find(base, detail=True).items():
        name, _, rest = path.removeprefix(f"{base}/").partition("/")
        content, _, file = rest.partition("/")
        if NAME.fullmatch(name) and is_content(content) and file:
            files.setdefault((name, content), {})[path] = info["mtime"].timestamp()
    return files
