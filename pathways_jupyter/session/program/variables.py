"""The environment variables by which a process finds the proxy of a session that another process has."""

from __future__ import annotations

import os
from collections.abc import Mapping

PLATFORM = "proxy"
PLATFORMS = "JAX_PLATFORMS"
TARGET = "JAX_BACKEND_TARGET"
INSECURE_CREDENTIALS = "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"
"""Without it JAX's client demands ALTS, which only works inside Google Cloud."""


def variables(target: str, *, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for JAX in a process that uses the proxy at `target`.

    Args:
      target: The tunnel's local end, ``grpc://unix:PATH`` or ``grpc://HOST:PORT``.
      environ: The environment that they are added to; this process's when left out. A ``JAX_PLATFORMS`` that begins
        with ``proxy``, such as ``proxy,cpu``, is kept.
    """
    given = (os.environ if environ is None else environ).get(PLATFORMS, "")
    platforms = given if given.partition(",")[0] == PLATFORM else PLATFORM
    return {PLATFORMS: platforms, TARGET: target, INSECURE_CREDENTIALS: "true"}
