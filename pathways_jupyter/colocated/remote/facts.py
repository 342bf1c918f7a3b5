"""What this host is: versions, process, place, and which packages it has."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import platform
import socket
import sys
from collections.abc import Iterable
from typing import Any

import jax

_DISTRIBUTIONS = ("jax", "jaxlib", "numpy", "cloudpickle")


def about() -> dict[str, Any]:
    """This host in JSON values."""
    installed = {module.name for module in pkgutil.iter_modules() if not module.name.startswith("_")}
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "embedded": "PATHWAYS_LOCAL_SOCKETS" in os.environ,
        "versions": {name: _version(name) for name in _DISTRIBUTIONS},
        "pid": os.getpid(),
        "hostname": os.environ.get("HOSTNAME") or socket.gethostname(),
        "pod_ip": os.environ.get("POD_IP", ""),
        "directory": os.getcwd(),
        "process_index": jax.process_index(),
        "process_count": jax.process_count(),
        "local_devices": [device.id for device in jax.local_devices()],
        "packages": sorted({*sys.builtin_module_names, *sys.stdlib_module_names, *installed}),
    }


def missing(names: Iterable[str]) -> list[str]:
    """Those of `names` (top-level modules) that cannot be imported here."""
    importlib.invalidate_caches()
    return [name for name in names if name not in sys.modules and importlib.util.find_spec(name) is None]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
