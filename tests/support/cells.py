"""Cells that run on the hosts."""

from typing import Any

from pathways_jupyter.colocated import cell_run


def values(source: str, **options: Any) -> dict[int, Any]:
    """Run a cell, and return the value of its last expression by host.

    Raises:
      ColocatedError: It failed on a host.
    """
    result = cell_run.run_cell(source, **options)
    error = result.error()
    if error is not None:
        raise error
    return result.values
