"""Register JAX's ``proxy`` platform in programs whose environment asks for it.

JAX imports every module of the namespace package ``jax_plugins`` when a program first uses a device, and calls its
``initialize()``. So a program that knows nothing of Pathways finds its devices by two environment variables:
``JAX_PLATFORMS=proxy`` and ``JAX_BACKEND_TARGET``. Without the second one nothing is imported and nothing changes.
"""

import os


def initialize() -> None:
    """Called by JAX, once per process, before it decides on its devices."""
    if os.environ.get("JAX_BACKEND_TARGET"):
        from pathways_jupyter.session.kernel import jax_platform

        jax_platform.register_if_asked()
