"""The quickstart notebook that the launcher's card opens."""

from __future__ import annotations

from typing import Any

from jupyter_core.utils import ensure_async

PATH = "pathways-quickstart.ipynb"

_CELLS = (
    (
        "markdown",
        "# TPUs in this notebook\n\n`--local` uses a small cluster on this machine. For yours, use `--context`, or the "
        "Connect button in the sidebar.",
    ),
    ("code", "%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2"),
    ("code", "import jax\n\njax.devices()"),
    (
        "code",
        "import jax.numpy as jnp\nfrom jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n\n"
        'mesh = Mesh(jax.devices(), ("chips",))\n'
        'x = jax.device_put(jnp.ones((1024, 1024)), NamedSharding(mesh, P("chips")))\n'
        "jax.jit(lambda x: (x @ x.T).sum())(x)",
    ),
    ("code", "%pathways slices"),
    ("code", "%pathways disconnect"),
)


async def write(contents: Any) -> str:
    """Write the notebook unless it exists, and return its path.

    Args:
      contents: The server's contents manager.
    """
    if not await ensure_async(contents.file_exists(PATH)):
        await ensure_async(contents.save({"type": "notebook", "format": "json", "content": _notebook()}, PATH))
    return PATH


def _notebook() -> dict[str, Any]:
    cells: list[dict[str, Any]] = []
    for index, (kind, source) in enumerate(_CELLS):
        cell = {"id": f"quickstart-{index}", "cell_type": kind, "metadata": {}, "source": source}
        cells.append(cell | ({"outputs": [], "execution_count": None} if kind == "code" else {}))
    return {
        "cells": cells,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
