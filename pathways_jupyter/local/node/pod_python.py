"""A Python of a pod's own: a virtual environment over the packages that are installed here.

A container stands for an image, and ``pip install`` in a container changes nothing outside it. So a pod's programs find
this machine's packages, and install beside them, into an environment that is removed with the pod.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from pathlib import Path


def make(directory: Path) -> None:
    """Make the environment of a pod; takes two milliseconds."""
    # Without pip, which is found in the packages below, or is missing here as well.
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    installed = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    # addsitedir() also reads the .pth files there, among them those of editable installs.
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in installed)
    (packages(directory) / "installed_here.pth").write_text(lines, encoding="utf-8")


def packages(directory: Path) -> Path:
    """Return the directory of the environment's installed packages."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(directory)}))


def variables(directory: Path) -> dict[str, str]:
    """Return the variables by which programs use the environment, `PATH` aside."""
    # pip runs itself with PIP_PYTHON, also when it is called as the pip of another environment.
    return {"VIRTUAL_ENV": str(directory), "PIP_PYTHON": str(directory / "bin" / "python")}
