"""Training that outlives the loss of slices: continue on fewer, and grow again when they are back.

::

    from pathways_jupyter import elastic

    result = elastic.train_loop(step, state, batches, steps=1000, mesh_for=make_mesh, minimum_slices=1)

:func:`train_loop` is the whole loop. For a loop of one's own there are its parts: :class:`Manager`, with the names and
meanings of pathwaysutils' ``elastic.manager.Manager``, :class:`Snapshots` and :class:`Goodput`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathways_jupyter.elastic.errors import (
        ElasticRetryLimit,
        ElasticRuntimeError,
        ProxyLostError,
        ScaleUpSignalError,
    )
    from pathways_jupyter.elastic.goodput import Goodput
    from pathways_jupyter.elastic.loop import train_loop
    from pathways_jupyter.elastic.manager import Manager
    from pathways_jupyter.elastic.record import Record
    from pathways_jupyter.elastic.snapshot import Snapshot
    from pathways_jupyter.elastic.snapshots import Snapshots
    from pathways_jupyter.elastic.training_run import Result

__all__ = [
    "ElasticRetryLimit",
    "ElasticRuntimeError",
    "Goodput",
    "Manager",
    "ProxyLostError",
    "Record",
    "Result",
    "ScaleUpSignalError",
    "Snapshot",
    "Snapshots",
    "train_loop",
]

_MODULES = {
    "ElasticRetryLimit": "errors",
    "ElasticRuntimeError": "errors",
    "Goodput": "goodput",
    "Manager": "manager",
    "ProxyLostError": "errors",
    "Record": "record",
    "Result": "training_run",
    "ScaleUpSignalError": "errors",
    "Snapshot": "snapshot",
    "Snapshots": "snapshots",
    "train_loop": "loop",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__"])
