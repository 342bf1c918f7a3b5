"""Who this kernel is, as Jupyter tells it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_CONNECTION_FILE = re.compile(r"kernel-(?P<id>.+)\.json")


def kernel_id() -> str:
    """Jupyter's id of this kernel, from its connection file's name; empty outside a kernel."""
    if "ipykernel" not in sys.modules:
        return ""
    from ipykernel.kernelapp import IPKernelApp

    if not IPKernelApp.initialized():
        return ""
    match = _CONNECTION_FILE.fullmatch(Path(IPKernelApp.instance().connection_file).name)
    return match["id"] if match else ""


def notebook() -> str:
    """Path of the notebook; empty where the server does not tell."""
    return os.environ.get("JPY_SESSION_NAME", "")
