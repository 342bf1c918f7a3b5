"""The environment variables by which a process finds the proxy of a session that another process has.

A kernel can set them for the processes that it starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pathways_jupyter.service.names import INSECURE_CREDENTIALS
from pathways_jupyter.session.clusters import Storage
from pathways_jupyter.session.registry import ALTS, SessionRecord

PLATFORM = "proxy"
"""JAX's name for devices behind a proxy."""
PLATFORMS = "JAX_PLATFORMS"
TARGET = "JAX_BACKEND_TARGET"
_PLATFORM_NAME = "JAX_PLATFORM_NAME"
"""JAX's older variable, which goes before the newer one."""
STORAGE_HOST = "STORAGE_EMULATOR_HOST"
"""Variables by which clients of Google Cloud Storage find another one in its place."""


def variables(record: SessionRecord, *, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for a process that uses the proxy of `record`: for JAX, and for its cluster's own bucket.

    Args:
      record: The record of a connected session.
      environ: The environment that they are added to; this process's when left out. A ``JAX_PLATFORMS`` that begins
        with ``proxy``, such as ``proxy,cpu``, is kept.
    """
    environ = os.environ if environ is None else environ
    platforms = environ.get(PLATFORMS, "")
    if platforms.partition(",")[0] != PLATFORM:
        platforms = PLATFORM
    insecure = {} if record.credentials == ALTS else {INSECURE_CREDENTIALS: "true"}
    storage = Storage.of(record)
    storage_variables = dict(storage.variables) if storage is not None else {}
    if environ.get(STORAGE_HOST, storage_variables.get(STORAGE_HOST)) != storage_variables.get(STORAGE_HOST):
        storage_variables = {}
    unnamed = {_PLATFORM_NAME: ""} if environ.get(_PLATFORM_NAME) else {}
    return {PLATFORMS: platforms, TARGET: record.target, **unnamed, **insecure, **storage_variables}


class ChangedEnvironment:
    """Variables in ``os.environ``, from :meth:`set` until :meth:`restore`."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}

    @property
    def is_changed(self) -> bool:
        """Return whether there is something to restore."""
        return bool(self._before)

    def set(self, variables: Mapping[str, str]) -> None:
        """Set these variables."""
        for name, value in variables.items():
            self._before.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def restore(self) -> None:
        """Restore the variables to what they were."""
        while self._before:
            name, value = self._before.popitem()
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class ChildEnvironment(ChangedEnvironment):
    """The session's variables in ``os.environ``, from :meth:`share` until :meth:`restore`.

    The kernel's own JAX does not notice them: it has read its settings when it was imported.
    """

    def share(self, record: SessionRecord) -> dict[str, str]:
        """Set the variables for the proxy of `record`, and return them."""
        platforms = os.environ.get(PLATFORMS, "") if PLATFORMS not in self._before else self._before[PLATFORMS] or ""
        shared = variables(record, environ={**os.environ, PLATFORMS: platforms})
        self.set(shared)
        return shared

    def follow(self, record: SessionRecord) -> None:
        """Change the variables to those of `record`, the session's new proxy; no-op if they are not shared."""
        if self._before:
            self.share(record)
