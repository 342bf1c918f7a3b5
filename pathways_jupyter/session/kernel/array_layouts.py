"""Ask a proxy for the layouts of arrays while it answers, before JAX asks for them.

Before the first program with arguments of a new dtype and shape, jaxlib asks the proxy for their default layout, and
holds Python's lock until the answer comes. If the connection is interrupted at that moment, no thread of the kernel
runs until it is back: panels stand still, and an Interrupt does nothing. So the layout is asked for when data of a new
dtype and shape are put on devices, soon after an array of one number has arrived there: JAX waits for that without the
lock, and until an Interrupt. jaxlib keeps the answer. What programs return has its layout from their compilation.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable
from typing import Any

from pathways_jupyter.session.kernel import device_puts

_asked: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
"""What each proxy's client has been asked for."""
_FRESH_SECONDS = 0.25
"""How long an answer shows that there is a connection: a tree of a hundred arrays need not wait for a hundred more."""
_answered_at = -1.0


def watch(client: Any) -> None:
    """Ask for the layouts of what is put on devices of `client`, from now on, and no more for a previous one."""
    _asked.clear()
    _asked[client] = set()
    device_puts.add(_ask)


def stop() -> None:
    """Ask no more."""
    device_puts.remove(_ask)
    _asked.clear()


def _ask(aval: Any, sharding: Any, device: Any) -> Callable[[Any], object] | None:
    import jax
    import numpy as np

    asked = _asked.get(device.client)
    # Neither keys nor strings have a layout of their own.
    if asked is None or jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended) or aval.dtype.kind == "T":
        return None
    layout = (sharding.shard_shape(aval.shape), aval.dtype, sharding.memory_kind)
    if layout in asked:
        return None
    if time.monotonic() - _answered_at > _FRESH_SECONDS:
        number, alone = np.zeros((), np.int8), jax.sharding.SingleDeviceSharding(device)
        device_puts.put(jax.core.ShapedArray((), number.dtype), alone, [number], [device]).block_until_ready()

    def ask(array: Any) -> None:
        global _answered_at
        # A server that knows no layouts, or that is lost now: JAX says so where it needs one.
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            array._pjrt_layout  # noqa: B018
        asked.add(layout)
        _answered_at = time.monotonic()

    return ask
