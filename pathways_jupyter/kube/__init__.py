"""A small Kubernetes client: credentials, requests, watches, logs and port-forwards, on plain JSON objects."""

from __future__ import annotations

import importlib.util
import sys


def claim_package() -> None:
    """Declare that nothing else in this process uses the `kubernetes` package.

    Of the package only the modules are then imported that this one names, which takes half as long, and a quarter less
    memory. For this package's own programs: a kernel or a script may use the package itself.
    """
    if "kubernetes" not in sys.modules:
        # `kubernetes` imports its synchronous half in its __init__, `kubernetes.aio` its own loader of configurations,
        # dynamic client, leader election. These two are never run; the client imports nothing of that.
        for name in ("kubernetes", "kubernetes.aio"):
            spec = importlib.util.find_spec(name)
            assert spec is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
