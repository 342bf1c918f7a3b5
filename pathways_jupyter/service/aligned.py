"""Memory for what comes in over a socket, such that XLA uses it where it is.

Here because both ends of the embedded cluster's colocated Python, and its proxy, receive arrays.
"""

from __future__ import annotations

_ALIGNMENT = 64
"""In bytes: XLA takes memory so aligned as it is, and copies any other."""


def aligned(size: int) -> memoryview:
    """Fresh memory of `size` bytes that XLA can use without a copy."""
    import numpy as np

    space = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -space.ctypes.data % _ALIGNMENT
    return space.data[skip : skip + size]
