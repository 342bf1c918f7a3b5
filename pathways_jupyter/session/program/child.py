"""One program as a child process: started, signalled, and ended with its group.

The program has a process group of its own, so that it can be ended with all its children. A terminal sends Ctrl-C to
its foreground group only and stops any other group that reads from it, so the program's group is made the foreground
one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.session.program import gate, watchdog

_RETRY_SECONDS = 0.2
_BARE_PYTHON = ("-I", "-S")
"""Neither site-packages nor variables: such an interpreter starts in some 10 ms."""


class Child:
    """A program in a process group of its own, watched so that it does not outlive this process.

    Args:
      command: The program and its arguments.
      environ: Its environment.

    Raises:
      SessionError: It could not be started.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._terminal = Terminal()
        # Inherited as ignored, it would make the kernel discard the exit codes of children.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gate_in, gate_out = os.pipe()
        try:
            self._watchdog = subprocess.Popen(
                [sys.executable, *_BARE_PYTHON, str(Path(watchdog.__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._process = subprocess.Popen(
                [sys.executable, *_BARE_PYTHON, str(Path(gate.__file__)), str(gate_in), *command],
                env=dict(environ),
                pass_fds=(gate_in,),
                process_group=0,
            )
            self.group = self._process.pid
            # A pipe keeps what was written even if this process is killed in the next moment.
            self._notify_watchdog(f"{self.group}\n".encode())
            # Before the gate opens: a program that reads before it has the terminal is stopped.
            self._terminal.give(self.group)
            os.write(gate_out, b"\n")
        except OSError as error:
            raise SessionError(
                f"{command[0]} could not be started: {error.strerror or error}.",
                hint="Check the machine's limits on processes, memory and open files.",
            ) from error
        finally:
            os.close(gate_in)
            os.close(gate_out)

    def wait(self) -> int:
        """Wait until the program has ended; return its exit code, or minus the signal that ended it.

        While it is stopped, so is this process. What it leaves behind in its process group is ended.
        """
        try:
            while True:
                _, status = os.waitpid(self.group, os.WUNTRACED)
                if not os.WIFSTOPPED(status):
                    break
                self._stopped(os.WSTOPSIG(status))
        finally:
            self._end()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode

    def send(self, number: int) -> None:
        """Send a signal to the program and its children, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.group, number)

    def _end(self) -> None:
        # First: a process that is not in the foreground is stopped when it reads from the terminal.
        self._terminal.take(self.group)
        self._terminal.close()
        watchdog.end_group(self.group)
        self._notify_watchdog(watchdog.DONE)
        assert self._watchdog.stdin is not None
        with contextlib.suppress(OSError):
            self._watchdog.stdin.close()
        self._watchdog.wait()

    def _stopped(self, number: int) -> None:
        """Stop this process's group as Ctrl-Z did the program's; continue the program once a shell continues it."""
        # What used the terminal before it got it, for example while a shell continued both, is not stopped by a user.
        if number not in {signal.SIGTTIN, signal.SIGTTOU} or not self._terminal.give(self.group):
            self._terminal.take(self.group)
            os.killpg(os.getpgrp(), signal.SIGTSTP)
            # Without a shell the kernel discards the signal; what read from the terminal would stop in a tight loop.
            time.sleep(_RETRY_SECONDS)
            self._terminal.give(self.group)
        self.send(signal.SIGCONT)

    def _notify_watchdog(self, words: bytes) -> None:
        assert self._watchdog.stdin is not None
        # OSError: the watchdog was killed.
        with contextlib.suppress(OSError):
            self._watchdog.stdin.write(words)
            self._watchdog.stdin.flush()


class Terminal:
    """The controlling terminal of this process, if there is one; otherwise all methods do nothing."""

    def __init__(self) -> None:
        try:
            # Not standard input, which may be a file while Ctrl-C still comes from the terminal.
            self._descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def give(self, group: int) -> bool:
        """Make `group` the foreground group, if this process's is; return whether it was."""
        return self._pass_on(os.getpgrp(), group)

    def take(self, group: int) -> None:
        """Make this process's group the foreground group, if `group` is."""
        self._pass_on(group, os.getpgrp())

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _pass_on(self, holder: int, group: int) -> bool:
        if self._descriptor < 0:
            return False
        # A background process that calls tcsetpgrp() is stopped by SIGTTOU, unless it blocks that signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            # OSError: the terminal hung up, or the group has ended.
            with contextlib.suppress(OSError):
                if os.tcgetpgrp(self._descriptor) == holder:
                    os.tcsetpgrp(self._descriptor, group)
                    return True
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
