"""A ``kill`` command for which process id 1 is the container's main process, as in a real container.

Ordinary users cannot create process namespaces, and ``kubectl exec POD -- /bin/sh -c "kill -s SIGILL 1"`` is the usual
way to break a worker on purpose. So each container has a ``kill`` on its PATH that knows the main process, and a shell
started with ``-c`` gets it as a function, since shells have a built-in ``kill``. Nothing else is emulated: ``ps`` shows
the machine's processes.

The ``kill`` is this very file, run as a program; it must import nothing but the standard library.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_MAIN_PID = "PATHWAYS_LOCAL_MAIN_PID"
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})


def install(directory: Path) -> None:
    """Write the program that every container has on its PATH before the machine's own."""
    directory.mkdir(mode=0o700, exist_ok=True)
    program = directory / "kill"
    command = shlex.join([sys.executable, "-IS", str(Path(__file__).resolve())])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    program.chmod(0o700)


def adapt(command: Sequence[str], directory: Path) -> list[str]:
    """`command`, or with the ``kill`` of `directory` as a function where it is a shell that runs a script.

    Args:
      directory: Where :func:`install` wrote the programs.
    """
    adapted = list(command)
    if len(adapted) > 2 and os.path.basename(adapted[0]) in _SHELLS and "c" in adapted[1] and adapted[1][0] == "-":
        adapted[2] = f'kill() {{ {shlex.quote(str(directory / "kill"))} "$@"; }}; {adapted[2]}'
    return adapted


def main(argv: Sequence[str], main_pid: int) -> int:
    """``kill [-s SIGNAL | -SIGNAL] PID...`` with 1 standing for `main_pid`; the exit code."""
    words = list(argv)
    number = signal.SIGTERM
    try:
        if words and words[0] in ("-s", "-n"):
            number = _signal(words[1])
            words = words[2:]
        elif len(words) > 1 and words[0].startswith("-") and words[0] != "--":
            number = _signal(words[0][1:])
            words = words[1:]
        pids = [int(word) for word in words if word != "--"]
        if not pids:
            raise ValueError("no process id")
    except (ValueError, KeyError, IndexError):
        print("kill: usage: kill [-s SIGNAL | -SIGNAL] PID...", file=sys.stderr)
        return 2
    # -1 means every process that may be signalled; without this that would include those outside the container.
    own = {1: main_pid, -1: -main_pid}
    code = 0
    for pid in pids:
        try:
            os.kill(own.get(pid, pid), number)
        except OSError as error:
            print(f"kill: {pid}: {error.strerror}", file=sys.stderr)
            code = 1
    return code


def _signal(text: str) -> signal.Signals:
    if text.isdecimal():
        return signal.Signals(int(text))
    return signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], int(os.environ[_MAIN_PID])))
