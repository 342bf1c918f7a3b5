"""Slow a container's main process down for a while: stop it and continue it, several times a second.

Run in the container, as ``kubectl exec`` does; it returns at once and works in the background. Nothing has to undo it:
it ends by itself, and a second process, which waits for the first one's end however that comes, continues the main
process for good.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_MAIN_PID = "PATHWAYS_LOCAL_MAIN_PID"
_STOPPED_SECONDS, _RUNNING_SECONDS = 0.4, 0.1


def main(seconds: float, main_pid: int) -> int:
    """Slow the process `main_pid` down for `seconds`; 0 ends what an earlier call began. The exit code."""
    # Whose content is this run's own; another call replaces or removes it, and so ends this one.
    mark = Path(tempfile.gettempdir(), f"pathways-stutter-{os.getuid()}-{main_pid}")
    if seconds <= 0:
        mark.unlink(missing_ok=True)
        return 0
    own = secrets.token_hex(8)
    mark.write_text(own, encoding="ascii")
    try:
        send = _sender(main_pid)
    except ProcessLookupError:
        mark.unlink(missing_ok=True)
        print("The main process has ended.", file=sys.stderr)
        return 1
    if os.fork():
        return 0
    _detach()
    read, write = os.pipe()
    if os.fork() == 0:
        # A session of its own, so that a signal for the first process's group does not end it too.
        os.setsid()
        os.close(write)
        os.read(read, 1)
        with contextlib.suppress(ProcessLookupError):
            send(signal.SIGCONT)
        os._exit(0)
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ProcessLookupError, OSError):
        while time.monotonic() < deadline and mark.read_text(encoding="ascii") == own:
            send(signal.SIGTSTP)
            time.sleep(_STOPPED_SECONDS)
            send(signal.SIGCONT)
            time.sleep(_RUNNING_SECONDS)
        if mark.read_text(encoding="ascii") == own:
            mark.unlink()
    os._exit(0)


def _sender(pid: int) -> Callable[[int], None]:
    """Return a function that signals process `pid`, and no other that gets its number later (where there are pidfds).

    Raises:
      ProcessLookupError: There is no such process.
    """
    if not hasattr(os, "pidfd_open"):
        os.kill(pid, 0)
        return lambda number: os.kill(pid, number)
    descriptor = os.pidfd_open(pid)
    return lambda number: signal.pidfd_send_signal(descriptor, number)


def _detach() -> None:
    """Become independent of the exec: of its group, and of its streams, whose end it waits for."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(os.environ[_MAIN_PID])))
