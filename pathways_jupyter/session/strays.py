"""Find and remove files of sessions that no record names.

A session is swept by its record. A supervisor that is killed in its first moments has not written one yet, and a record
may be damaged: then its log, its sockets and its temporary files would stay for ever. Nothing of such a session is in
the cluster, as far as anybody on this machine can know: the record is written before anything is created there.

A log is the sign of life: :mod:`~pathways_jupyter.session.kernel.spawn` takes a shared lock on it, which the processes
that write it inherit, so the operating system releases it when the last of them is gone.
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

from pathways_jupyter.config import runtime_dir
from pathways_jupyter.errors import SessionError
from pathways_jupyter.session import registry

_SESSION = re.compile(r"[0-9a-f]{10}")
_TEMPORARY = re.compile(rf"{registry.TEMPORARY_PREFIX}(?P<session>[0-9a-f]{{10}})-\w+")
_TEMPORARY_SECONDS = 3600.0
"""Age from which a directory of sockets counts: it may belong to a session of another runtime directory, whose log is
not seen from here, and which listens on its socket only some time after it made the directory."""


@dataclass(frozen=True)
class Strays:
    """What is left of one session."""

    session: str
    paths: tuple[Path, ...]


def find() -> list[Strays]:
    """Return what is left of every session that has no usable record and no process."""
    by_session: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(runtime_dir().iterdir()):
        session, _, kind = path.name.partition(".")
        if _SESSION.fullmatch(session) and kind:
            by_session[session].append(path)
    for session, path in _temporary_directories():
        by_session[session].append(path)
    found = []
    for session, paths in by_session.items():
        # The record is looked for after the files were listed: it may have been written in between.
        if registry.read(session) is None:
            with _unused(session) as unused:
                if unused:
                    found.append(Strays(session, tuple(paths)))
    return found


def remove(strays: Strays) -> None:
    """Delete the files of `strays`; does nothing if a process has come to use them.

    Raises:
      SessionError: Some cannot be deleted.
    """
    with _unused(strays.session) as unused:
        if not unused or registry.read(strays.session) is not None:
            return
        problems = [problem for path in strays.paths if (problem := _delete(path))]
    if problems:
        raise SessionError(f"{problems[0]}.", hint="Remove it by hand.")


def _delete(path: Path) -> str:
    """Delete a file, or a directory of sockets; why that failed, or an empty text."""
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
    """Whether no process uses the files of `session`; inside the block none begins to."""
    control = runtime_dir() / f"{session}.sock"
    try:
        # Neither waiting (it may be a FIFO) nor following a link: what is there may be anything.
        log = os.open(registry.log_path(session), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        # There is none, or what is there is not a file that a supervisor writes.
        yield not registry.accepts(str(control))
        return
    try:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Held by a supervisor; or a file system without locks, where nothing can be known.
            yield False
        else:
            yield not registry.accepts(str(control))
    finally:
        os.close(log)


def _temporary_directories() -> Iterator[tuple[str, Path]]:
    """Directories of sockets that were made because the runtime directory's path is too long for them."""
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
