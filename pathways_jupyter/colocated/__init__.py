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

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathways_jupyter.colocated.cell_run import reset, run_cell, who
    from pathways_jupyter.colocated.errors import CheckError, ColocatedError, HostError, LostError
    from pathways_jupyter.colocated.feed import iterator
    from pathways_jupyter.colocated.functions import class_, function
    from pathways_jupyter.colocated.host import Host, hosts
    from pathways_jupyter.colocated.restarting import restart
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

_WHERE = {
    "CheckError": "errors",
    "ColocatedError": "errors",
    "Host": "host",
    "HostError": "errors",
    "Interrupted": "results",
    "LostError": "errors",
    "class_": "functions",
    "function": "functions",
    "hosts": "host",
    "iterator": "feed",
    "reset": "cell_run",
    "restart": "restarting",
    "run_cell": "cell_run",
    "who": "cell_run",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__"])
