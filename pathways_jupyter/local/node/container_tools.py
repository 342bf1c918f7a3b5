"""Commands that each container has of its own: a Python to install packages into, and a ``kill`` that knows process 1.

A container stands for an image, and ``pip install`` in a container changes nothing outside it. So a pod's programs find
this machine's packages, and install beside them, into an environment that is removed with the pod.

Ordinary users cannot create process namespaces, and ``kubectl exec POD -- /bin/sh -c "kill -s SIGILL 1"`` is the usual
way to break a worker on purpose. So each container has a ``kill`` on its PATH for which process id 1 is the container's
main process, and a shell started with ``-c`` gets it as a function, since shells have a built-in ``kill``. Nothing else
is emulated: ``ps`` shows the machine's processes.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
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


def install_kill(directory: Path) -> None:
    """Write the program that every container has on its PATH before the machine's own."""
    directory.mkdir(mode=0o700, exist_ok=True)
    program = directory / "kill"
    program.write_text(f"#!/bin/sh\n{_KILL}", encoding="utf-8")
    program.chmod(0o700)


def with_kill(command: Sequence[str]) -> list[str]:
    """Return `command`, with ``kill`` as a function where it is a shell that runs a script."""
    adapted = list(command)
    if len(adapted) > 2 and os.path.basename(adapted[0]) in _SHELLS and "c" in adapted[1] and adapted[1][0] == "-":
        adapted[2] = f"kill() {{{_KILL}}}; {adapted[2]}"
    return adapted


def make_python(directory: Path) -> None:
    """Make a pod's virtual environment over the packages that are installed here; takes two milliseconds."""
    # Without pip, which is found in the packages below, or is missing here as well.
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    installed = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    # addsitedir() also reads the .pth files there, among them those of editable installs.
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in installed)
    (packages(directory) / "installed_here.pth").write_text(lines, encoding="utf-8")


def packages(directory: Path) -> Path:
    """Return the directory of the environment's installed packages."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(directory)}))


def python_variables(directory: Path) -> dict[str, str]:
    """Return the variables by which programs use the environment, `PATH` aside."""
    # pip runs itself with PIP_PYTHON, also when it is called as the pip of another environment.
    return {"VIRTUAL_ENV": str(directory), "PIP_PYTHON": str(directory / "bin" / "python")}
