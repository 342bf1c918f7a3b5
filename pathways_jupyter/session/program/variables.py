"""The environment variables by which a process finds the proxy of a session that another process has."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pathways_jupyter.session.kernel.jax_switch import INSECURE_CREDENTIALS, PLATFORM
from pathways_jupyter.session.registry import ALTS, SessionRecord

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
