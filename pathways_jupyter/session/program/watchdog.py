"""End a program whose parent was killed; run as a file, without the package.

Standard input is a pipe that only the parent writes to: first the program's process group, and ``done`` at its end. If
the pipe closes without that word, the parent was killed. It runs in a process session of its own, so that what is sent
to the parent's group does not reach it.
"""

import os
import signal
import sys
import time

DONE = b"done\n"
_GRACE_SECONDS = 3.0
"""Time that a process group has for its own clean-up after SIGTERM, before SIGKILL."""
_LOOK_SECONDS = 0.02


def end_group(group: int) -> None:
    """End all processes of a process group."""
    if not _send(group, signal.SIGTERM):
        return
    # A stopped process handles no signal until it continues.
    _send(group, signal.SIGCONT)
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        if not _send(group, 0):
            return
        time.sleep(_LOOK_SECONDS)
    _send(group, signal.SIGKILL)


def _send(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # macOS reports this for a group of zombies; elsewhere the program has changed its user.
        return number != 0
    return True


def main() -> int:
    """Wait for the parent's end."""
    group = sys.stdin.buffer.readline().strip()
    if group.isdigit() and DONE not in sys.stdin.buffer.read():
        end_group(int(group))
    return 0


if __name__ == "__main__":
    sys.exit(main())
