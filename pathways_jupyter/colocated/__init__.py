"""Python on the TPU hosts of a session: cells, functions, classes and data-loading iterators.

::

    from pathways_jupyter import colocated

    @colocated.function
    def free_space():
        return shutil.disk_usage("/tmp").free

    free_space.on_each()        # {0: ..., 1: ...}

Everything goes through JAX's own colocated Python and works with any sidecar; see ``%%colocated`` for cells.
"""

from __future__ import annotations

from pathways_jupyter.colocated.batch_iterator import iterator
from pathways_jupyter.colocated.cell_run import run_cell
from pathways_jupyter.colocated.errors import CheckError, ColocatedError, HostError, LostError
from pathways_jupyter.colocated.functions import class_, function
from pathways_jupyter.colocated.host import Host, hosts
from pathways_jupyter.colocated.memory import reset, restart, who
from pathways_jupyter.colocated.results import Interrupted

__all__ = [
    "CheckError",
    "ColocatedError",
    "Host",
    "HostError",
    "Interrupted",
    "LostError",
    "class_",
    "function",
    "hosts",
    "iterator",
    "reset",
    "restart",
    "run_cell",
    "who",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__"])
