"""Register JAX's ``proxy`` platform in programs whose environment asks for it: an entry point of group ``jax_plugins``.

JAX imports this module when a program first uses a device, and calls :func:`initialize`. So a program that knows
nothing of Pathways finds its devices by two environment variables: ``JAX_PLATFORMS=proxy`` and ``JAX_BACKEND_TARGET``.
Without the second one nothing more is imported, and nothing changes.
"""

from __future__ import annotations

import os

_kept: list[object] = []


def initialize() -> None:
    """Initialize the plugin: JAX calls this once per process, before it decides on its devices."""
    if os.environ.get("JAX_BACKEND_TARGET"):
        from pathways_jupyter.session.kernel import jax_platform, silenced_logs
        from pathways_jupyter.session.kernel.storage import AdoptedStorage, of_environment

        jax_platform.register_if_asked()
        # To the end of the process: that of a program closes its connection, of which jaxlib 0.12 writes a page.
        _kept.append(silenced_logs.SilencedLogs())
        storage = AdoptedStorage()
        storage.adopt(of_environment())
        _kept.append(storage)
