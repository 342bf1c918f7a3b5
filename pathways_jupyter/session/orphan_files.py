"""Find and remove files of sessions that have no record.

Sessions are swept by their records. A supervisor that is killed in its first moments has not written one yet, and a
record may be damaged; then its log, sockets and temporary files would stay for ever. Such a session has no objects in
the cluster, as far as this machine can know, because the record is written before anything is created there.

The lock of the log shows whether the session is alive: :mod:`~pathways_jupyter.session.kernel.spawn` takes a shared
lock, the processes that write the log inherit it, and the operating system releases it when the last of them ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pathways_jupyter.base.config import runtime_dir
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.session import registry

_SESSION = re.compile(r"[0-9a-f]{10}")
_TEMPORARY = re.compile(rf"{registry.TEMPORARY_PREFIX}(?P<session>[0-9a-f]{{10}})-\w+")
_TEMPORARY_SECONDS = 3600.0
"""Minimum age of a stray directory of sockets. It may belong to a session of another runtime directory, whose log is
not visible here, and which begins to listen only some time after it created the directory."""


@dataclass(frozen=True)
class OrphanFiles:
    """The leftover files of one session."""

    session: str
    paths: tuple[Path, ...]


def find() -> list[OrphanFiles]:
    """Return the files of every session that has neither a usable record nor a process."""
    by_session: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(runtime_dir().iterdir()):
        session, _, kind = path.name.partition(".")
        if _SESSION.fullmatch(session) and kind:
            by_session[session].append(path)
    for session, path in _temporary_directories():
        by_session[session].append(path)
    orphans = []
    for session, paths in by_session.items():
        # Look for the record after listing the files: it may have been written in between.
        if registry.read(session) is None:
            with _unused(session) as unused:
                if unused:
                    orphans.append(OrphanFiles(session, tuple(paths)))
    return orphans


def remove(orphans: OrphanFiles) -> None:
    """Delete the files of `orphans`; no-op if a process uses them by now.

    Raises:
      SessionError: Some files cannot be deleted.
    """
    with _unused(orphans.session) as unused:
        if not unused or registry.read(orphans.session) is not None:
            return
        problems = [problem for path in orphans.paths if (problem := _delete(path))]
    if problems:
        raise SessionError(f"{problems[0]}.", hint="Remove it manually.")


def _delete(path: Path) -> str:
    """Delete a file or a directory of sockets; return why that failed, or an empty string."""
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            for each in path.iterdir() if _TEMPORARY.fullmatch(path.name) else ():
                each.unlink()
            path.rmdir()
        else:
            path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        return f"{path} could not be removed: {error.strerror}"
    return ""


@contextlib.contextmanager
def _unused(session: str) -> Iterator[bool]:
    """Yield whether no process uses the files of `session`; inside the block none can begin to."""
    control = runtime_dir() / f"{session}.sock"
    try:
        log = os.open(registry.log_path(session), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        # There is no log, or it is not a file that a supervisor writes.
        yield not registry.accepts(str(control))
        return
    try:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Held by a supervisor; or the file system has no locks, so the session may be alive.
            yield False
        else:
            yield not registry.accepts(str(control))
    finally:
        os.close(log)


def _temporary_directories() -> Iterator[tuple[str, Path]]:
    """Yield directories of sockets that were created because the runtime directory's path is too long."""
    for parent in sorted({tempfile.gettempdir(), "/tmp"}):
        for path in Path(parent).glob(f"{registry.TEMPORARY_PREFIX}*"):
            match = _TEMPORARY.fullmatch(path.name)
            if match is None:
                continue
            with contextlib.suppress(OSError):
                status = path.lstat()
                ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
                old = time.time() - status.st_mtime > _TEMPORARY_SECONDS
                if ours and old and not any(registry.accepts(str(each)) for each in path.iterdir()):
                    yield match["session"], path
