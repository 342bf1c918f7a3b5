"""The environment variables by which a process finds the proxy of a session that another process has."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pathways_jupyter.session.registry import ALTS, SessionRecord

PLATFORM = "proxy"
"""JAX's name for devices behind a proxy."""
INSECURE_CREDENTIALS = "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"
"""Without it JAX's client demands ALTS, which only works inside Google Cloud."""
PLATFORMS = "JAX_PLATFORMS"
TARGET = "JAX_BACKEND_TARGET"


def variables(record: SessionRecord, *, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for JAX in a process that uses the proxy of `record`.

    Args:
      record: The record of a connected session.
      environ: The environment that they are added to; this process's when left out. A ``JAX_PLATFORMS`` that begins
        with ``proxy``, such as ``proxy,cpu``, is kept.
    """
    given = (os.environ if environ is None else environ).get(PLATFORMS, "")
    platforms = given if given.partition(",")[0] == PLATFORM else PLATFORM
    insecure = {} if record.credentials == ALTS else {INSECURE_CREDENTIALS: "true"}
    return {PLATFORMS: platforms, TARGET: record.target, **insecure}
