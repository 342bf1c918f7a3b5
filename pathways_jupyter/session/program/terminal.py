"""The terminal, which belongs to one process group at a time: this one's or the program's.

The program has a process group of its own, so that it can be ended with all its children. A terminal sends Ctrl-C and
Ctrl-Z to its foreground group only and stops any other group that reads from it, so the program's group is made the
foreground one, as a shell does.
"""

from __future__ import annotations

import contextlib
import os
import signal


class Terminal:
    """The controlling terminal of this process, if there is one; otherwise all methods do nothing."""

    def __init__(self) -> None:
        try:
            # Not standard input, which may be a file while Ctrl-C still comes from the terminal.
            self._descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def is_ours(self, group: int = 0) -> bool:
        """Whether `group`, by default this process's, is the foreground group."""
        try:
            return self._descriptor >= 0 and os.tcgetpgrp(self._descriptor) == (group or os.getpgrp())
        except OSError:
            return False

    def give(self, group: int) -> None:
        """Make `group` the foreground group, if this process's is."""
        if self.is_ours():
            self._set(group)

    def take(self, group: int) -> None:
        """Make this process's group the foreground group, if `group` is."""
        if self.is_ours(group):
            self._set(os.getpgrp())

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _set(self, group: int) -> None:
        # A background process that calls tcsetpgrp() is stopped by SIGTTOU, unless it blocks that signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            # OSError: the terminal hung up, or the group has ended.
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._descriptor, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
