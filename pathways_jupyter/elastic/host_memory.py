"""Host memory for copies of the training state: the TPU hosts', and this process's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathways_jupyter.elastic.errors import ElasticRuntimeError

_SHARE = 0.5
"""Share of this machine's available memory that snapshots in the notebook may take."""
_HOSTS = "pinned_host"


def on_hosts(state: Any) -> bool:
    """Return whether the devices of `state` have memory of their hosts for copies."""
    import jax

    devices = {device for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array) for device in leaf.devices()}
    return bool(devices) and all(
        any(memory.kind == _HOSTS for memory in device.addressable_memories()) for device in devices
    )


def copied(leaves: Sequence[Any]) -> list[Any]:
    """Enqueue a copy of each array into its hosts' memory; where there is none, on its devices."""
    import jax
    import numpy as np

    arrays = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    shardings = [leaves[place].sharding for place in arrays]
    if on_hosts([leaves[place] for place in arrays]):
        shardings = [sharding.with_memory_kind(_HOSTS) for sharding in shardings]
    copies: list[Any] = [np.array(leaf) if not isinstance(leaf, jax.Array) else None for leaf in leaves]
    # May not alias: an alias would be donated together with the array.
    put = jax.device_put([leaves[place] for place in arrays], shardings, may_alias=False)
    for place, array in zip(arrays, put, strict=True):
        copies[place] = array
    return copies


def limit() -> int:
    """Return the bytes that snapshots in this process may take if no limit is given."""
    return int(_SHARE * _available_bytes())


def require(needed: int, allowed: int, *, each: int, keep: int) -> None:
    """Raise an error if `needed` bytes are more than `allowed`.

    Raises:
      ElasticRuntimeError: They are; the message has the numbers.
    """
    if needed > allowed:
        raise ElasticRuntimeError(
            f"Snapshots need {gigabytes(needed)} of memory in this process ({keep} kept and one in the "
            f"making, {gigabytes(each)} each), but may take {gigabytes(allowed)}.",
            hint="Keep fewer, raise limit_bytes, or replicate the state over slices: then the hosts hold them.",
        )


def gigabytes(count: int) -> str:
    """Return a number of bytes for people."""
    return f"{count / 1e9:.2f} GB"


def _available_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    # Not Linux: only the size of the memory is known.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
