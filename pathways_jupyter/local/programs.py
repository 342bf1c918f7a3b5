"""The programs that run in the embedded cluster's pods, and what their fork servers import beforehand.

Each is imported where it is called, in a fork, so that naming a program loads nothing. There are two fork servers: the
one with JAX serves the programs that use it, and the other one all others, which start with a tenth of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence


def resource_manager(argv: Sequence[str]) -> int:
    """Run a service's resource manager."""
    from pathways_jupyter.local.pathways import resource_manager

    return resource_manager.main(argv)


def worker(argv: Sequence[str]) -> int:
    """Run the worker of one host of a slice."""
    from pathways_jupyter.local.pathways import worker

    return worker.main(argv)


def proxy(argv: Sequence[str]) -> int:
    """Run a session's proxy."""
    from pathways_jupyter.local.pathways import proxy_program

    return proxy_program.main(argv)


def sidecar(argv: Sequence[str]) -> int:
    """Run the sidecar of one host, for colocated Python."""
    from pathways_jupyter.local.pathways.sidecar import server

    return server.main(argv)


def operator(argv: Sequence[str]) -> int:
    """Run the operator, the same program as in any other cluster."""
    from pathways_jupyter.operator import main

    return main.main(list(argv))


def lab(argv: Sequence[str]) -> int:
    """Run JupyterLab in a pod."""
    from pathways_jupyter.local import jupyterlab

    return jupyterlab.main(argv)


def preload() -> None:
    """Import what the programs without JAX need."""
    from pathways_jupyter.local.pathways import resource_manager, worker  # noqa: F401


def preload_jax() -> None:
    """Import what the programs with JAX need.

    JAX itself above all: a proxy that imports it after its fork listens half a second of CPU time later.
    """
    import jax.experimental.colocated_python  # noqa: F401
    import jaxlib.mlir.dialects.func
    import jaxlib.mlir.ir  # noqa: F401

    from pathways_jupyter.local.pathways import proxy_program  # noqa: F401
