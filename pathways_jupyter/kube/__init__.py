"""A small Kubernetes client: credentials, requests, watches, logs and port-forwards, on plain JSON objects."""

from __future__ import annotations

import importlib.util
import sys


def claim_package() -> None:
    """Declare that nothing else in this process uses the `kubernetes` package.

    Its synchronous half is then not imported, which is a third of the time that the import takes, and a quarter of the
    memory. For this package's own programs: a kernel or a script may use the package itself.
    """
    if "kubernetes" not in sys.modules:
        # The package imports its synchronous half in its __init__, which so is never run; the asynchronous half
        # imports nothing of it.
        spec = importlib.util.find_spec("kubernetes")
        assert spec is not None
        sys.modules["kubernetes"] = importlib.util.module_from_spec(spec)
