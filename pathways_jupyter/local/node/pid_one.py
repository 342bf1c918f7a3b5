"""A ``kill`` command for which process id 1 is the container's main process, as in a real container.

Ordinary users cannot create process namespaces, and ``kubectl exec POD -- /bin/sh -c "kill -s SIGILL 1"`` is the usual
way to break a worker on purpose. So each container has a ``kill`` on its PATH that knows the main process, and a shell
started with ``-c`` gets it as a function, since shells have a built-in ``kill``. Nothing else is emulated: ``ps`` shows
the machine's processes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})

# A first -1 is SIGHUP; a later one means every process, which here would include those outside the container.
_KILL = r"""
before= count=0
for word; do
  shift
  count=$((count + 1))
  case "$before $word" in
    "-s "* | "-n "*) set -- "$@" "${word#SIG}" ;;
    *" 1") set -- "$@" "$PATHWAYS_LOCAL_MAIN_PID" ;;
    *" -1") [ $count = 1 ] && set -- "$@" -1 || set -- "$@" "-$PATHWAYS_LOCAL_MAIN_PID" ;;
    *" -SIG"*) set -- "$@" "-${word#-SIG}" ;;
    *" -n") set -- "$@" -s ;;
    *) set -- "$@" "$word" ;;
  esac
  before=$word
done
command kill "$@"
"""


def install(directory: Path) -> None:
    """Write the program that every container has on its PATH before the machine's own."""
    directory.mkdir(mode=0o700, exist_ok=True)
    program = directory / "kill"
    program.write_text(f"#!/bin/sh\n{_KILL}", encoding="utf-8")
    program.chmod(0o700)


def adapt(command: Sequence[str]) -> list[str]:
    """`command`, or with ``kill`` as a function where it is a shell that runs a script."""
    adapted = list(command)
    if len(adapted) > 2 and os.path.basename(adapted[0]) in _SHELLS and "c" in adapted[1] and adapted[1][0] == "-":
        adapted[2] = f"kill() {{{_KILL}}}; {adapted[2]}"
    return adapted
