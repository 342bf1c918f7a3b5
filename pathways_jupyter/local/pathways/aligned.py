"""Memory for arrays received from a socket, aligned so that XLA uses it without a copy.

Used by both ends of the embedded cluster's colocated Python, and by its proxy.
"""

from __future__ import annotations

_ALIGNMENT = 64
"""In bytes: XLA uses memory with this alignment in place, and copies any other."""


def aligned(size: int) -> memoryview:
    """Return uninitialized memory of `size` bytes that XLA can use without a copy."""
    import numpy as np

    space = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -space.ctypes.data % _ALIGNMENT
    return space.data[skip : skip + size]
