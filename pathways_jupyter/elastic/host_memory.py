"""Host memory for copies of the training state: the TPU hosts', and this process's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SHARE = 0.5
"""Share of this machine's available memory that snapshots in the notebook may take."""
_HOSTS = "pinned_host"


def on_hosts(state: Any) -> bool:
    """Return whether the devices of `state` have memory of their hosts for copies."""
    import jax

    shardings = {leaf.sharding for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)}
    devices = {device for sharding in shardings for device in sharding.device_set}
    return bool(devices) and all(
        any(memory.kind == _HOSTS for memory in device.addressable_memories()) for device in devices
    )


def copied(leaves: Sequence[Any]) -> list[Any]:
    """Enqueue a copy of each array into its hosts' memory; where there is none, on its devices."""
    import jax
    import numpy as np

    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    shardings = [array.sharding for array in arrays]
    if on_hosts(arrays):
        shardings = [sharding.with_memory_kind(_HOSTS) for sharding in shardings]
    # In one call, so that they overlap. May not alias: an alias would be donated together with the array.
    put = iter(jax.device_put(arrays, shardings, may_alias=False))
    return [next(put) if isinstance(leaf, jax.Array) else np.array(leaf) for leaf in leaves]


def limit() -> int:
    """Return the bytes that snapshots in this process may take if no limit is given."""
    import psutil

    return int(_SHARE * psutil.virtual_memory().available)
