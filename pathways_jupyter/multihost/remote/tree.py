"""Unpack a directory on a host from the store."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pathways_jupyter.multihost.remote.store import Store

FILE, LINK, DIRECTORY = "file", "link", "dir"

Entry = Sequence[Any]
"""``[kind, path, mode, hash or the link's target]``."""


def unpack(entries: Sequence[Entry], store: Store, directory: Path, records: Path) -> int:
    """Make `directory` hold what `entries` describe, and return the number of files that were written.

    A new directory appears under its name only when it is complete. In one that exists, each file is replaced
    atomically, files of the previous unpacking that are no longer sent are removed, and all other files are left alone.

    Raises:
      OSError: A file cannot be written.
      ValueError: An entry leads out of the directory.
    """
    for _, path, *_ in entries:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts:
            raise ValueError(f"{path!r} leads out of the directory")
    record = records / f"{hashlib.blake2b(os.fsencode(directory), digest_size=16).hexdigest()}.json"
    if directory.is_dir():
        before = _read(record)
        written, now = _update(entries, store, directory, before)
        for path in sorted(set(before) - set(now), reverse=True):
            with contextlib.suppress(OSError):
                (directory / path).unlink()
    else:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = directory.parent / f".{directory.name}.{os.getpid()}.partial"
        try:
            partial.mkdir()
            written, now = _update(entries, store, partial, {})
            try:
                partial.rename(directory)
            except OSError:
                if not directory.is_dir():
                    raise
                # Another host with the same home directory was faster.
                written, now = _update(entries, store, directory, {})
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    records.mkdir(parents=True, exist_ok=True)
    scratch = record.with_name(f"{record.name}.{os.getpid()}")
    scratch.write_text(json.dumps(now))
    scratch.replace(record)
    return written


def _update(
    entries: Sequence[Entry], store: Store, directory: Path, before: dict[str, list[Any]]
) -> tuple[int, dict[str, list[Any]]]:
    """Write the files that differ; return how many, and what is there now."""
    written, now = 0, {}
    made = {directory}
    for kind, path, mode, content in entries:
        target = directory / path
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        if kind == DIRECTORY:
            target.mkdir(exist_ok=True)
            made.add(target)
            continue
        if path in before and before[path] == [content, *_stamp(target)]:
            now[path] = before[path]
            continue
        scratch = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            if kind == LINK:
                os.symlink(content, scratch)
            else:
                # A copy, not a hard link: a command that changes its files in place must not change the store.
                shutil.copyfile(store.path(content), scratch)
                os.chmod(scratch, mode)
            scratch.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                scratch.unlink()
            raise
        written += 1
        now[path] = [content, *_stamp(target)]
    return written, now


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is changed: modification time, size and mode; zeros without a file."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_mode


def _read(record: Path) -> dict[str, list[Any]]:
    try:
        found = json.loads(record.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
