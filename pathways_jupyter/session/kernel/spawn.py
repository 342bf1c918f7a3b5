"""Start the processes that outlive a kernel: the supervisor, and the sweep that cleans up after a dead one.

Both run in their own process session, because an Interrupt reaches the kernel's whole process group, and with ``-P``,
because a notebook's directory may contain a file with a standard module's name. They share only the descriptors that
are passed to them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.session import orphan_files, registry
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.protocol import STANDS_BY, Method
from pathways_jupyter.session.registry import SessionRecord

SUPERVISOR = "pathways_jupyter.session.supervisor.main"
SWEEP = "pathways_jupyter.session.sweep"
_LOG_TAIL_CHARACTERS = 2000
_STANDBY_SECONDS = 800.0
"""Longest use of a supervisor that was started in advance; shorter than its own `_UNUSED_SECONDS`."""
_ATTACH_SECONDS = 5.0


_standby: SupervisorLink | None = None
_standby_until = 0.0
_standby_lock = threading.Lock()
_has_connected = False


def prepare(*, first: bool = False) -> None:
    """Start a supervisor in advance, because a process takes longer to start than a proxy.

    For some minutes it keeps connections open to the cluster that the settings name now. It exits with this process,
    after a quarter of an hour without use, or when a connect is interrupted. May be called on any thread.

    Args:
      first: Only if no connection has begun, or was given up, in this process so far.

    Raises:
      SessionError: The process could not be started.
    """
    global _standby, _standby_until
    with _standby_lock:
        if not _is_ready() and not (first and _has_connected):
            _standby, _standby_until = _start(STANDS_BY), time.monotonic() + _STANDBY_SECONDS


def supervisor() -> SupervisorLink:
    """Return the link to the supervisor of a new session, which waits for ``start``.

    Raises:
      SessionError: The process could not be started.
    """
    global _standby, _has_connected
    with _standby_lock:
        link, ready, _standby, _has_connected = _standby, _is_ready(), None, True
    return link if link is not None and ready else _start()


def discard() -> None:
    """End the supervisor that was started in advance, if there is one."""
    global _standby, _has_connected
    with _standby_lock:
        link, _standby, _has_connected = _standby, None, True
    if link is not None:
        link.close()


def _is_ready() -> bool:
    return _standby is not None and _standby.usable and time.monotonic() < _standby_until


def attach(record: SessionRecord) -> SupervisorLink | None:
    """Become the owner of a session that outlived its kernel; None if it has an owner or has ended."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(record.socket)
    except OSError:
        connection.close()
        return None
    link = SupervisorLink(connection, record.id, orphaned=lambda: after_supervisor(record.id))
    try:
        link.request(Method.ATTACH, patience=_ATTACH_SECONDS)
    except SessionError:
        link.close()
        return None
    return link


def _start(*options: str) -> SupervisorLink:
    session = registry.new_session_id()
    log = None
    # From here on, because an Interrupt may come between the making of the log and the next line.
    try:
        log = _log(session)
        ours, theirs = socket.socketpair()
        try:
            process = _detached(SUPERVISOR, session, *options, stdin=theirs.fileno(), log=log)
        except BaseException:
            ours.close()
            raise
        finally:
            # This process's copy: with it open, the supervisor's death would not show on the other end.
            theirs.close()
    except BaseException as error:
        # No process uses the log.
        with contextlib.suppress(OSError):
            registry.log_path(session).unlink()
        if isinstance(error, OSError):
            raise SessionError(
                f"The session's supervisor could not be started: {error.strerror or error}.",
                hint="Check the machine's limits on processes, memory and open files.",
            ) from error
        raise
    finally:
        if log is not None:
            os.close(log)
    return SupervisorLink(ours, session, process=process, orphaned=lambda: after_supervisor(session))


def after_supervisor(session: str) -> Callable[[], str]:
    """Begin to sweep a dead supervisor's session in a process of its own; return what waits for it, and its outcome."""
    if registry.read(session) is None:
        words = ""
        with contextlib.suppress(OSError):
            log = registry.log_path(session).read_text(encoding="utf-8", errors="replace")
            words = log[-_LOG_TAIL_CHARACTERS:].strip()
        _remove_orphan_files(session)
        return lambda: f"It ended before the session was started{f': {words}' if words else '.'}"
    sweep = _begin_sweep(session)

    def outcome() -> str:
        is_swept = sweep is not None and sweep.wait() == 0
        # Another process may have removed the record, and the files that it knew, before the log was opened again.
        _remove_orphan_files(session)
        if is_swept:
            return "Its objects in the cluster were removed."
        return "Its objects in the cluster could not be removed yet: pathways-jupyter clean tries again."

    return outcome


def _begin_sweep(session: str) -> subprocess.Popen[bytes] | None:
    """Start a sweep of `session`; None if this machine cannot start it."""
    with contextlib.suppress(OSError):
        try:
            log = _log(session)
        except SessionError:
            # The disk is full: sweep without a log.
            log = os.open(os.devnull, os.O_WRONLY)
        try:
            return _detached(SWEEP, session, stdin=subprocess.DEVNULL, log=log)
        finally:
            os.close(log)
    return None


def _remove_orphan_files(session: str) -> None:
    # What cannot be removed now is left to the next sweep.
    with contextlib.suppress(SessionError, OSError):
        for left in orphan_files.find():
            if left.session == session:
                orphan_files.remove(left)


def _log(session: str) -> int:
    """Open the log of `session`, locked as long as any process holds the descriptor.

    Raises:
      SessionError: It cannot be created.
    """
    path = registry.log_path(session)
    try:
        while True:
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            # The lock marks the file as in use. Without locks, orphan_files.py treats every file as in use.
            with contextlib.suppress(OSError):
                fcntl.flock(log, fcntl.LOCK_SH)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(log), path.stat()):
                    return log
            # A sweep removed the file between open() and flock(), taking it for a dead session's. Create it again.
            os.close(log)
    except OSError as error:
        raise SessionError(
            f"The session's log {path} cannot be created: {error.strerror or error}.",
            hint="Free some space there, or set JUPYTER_RUNTIME_DIR to another directory.",
        ) from error


def _detached(module: str, *arguments: str, stdin: int, log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=stdin,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
