"""Replace the function by which JAX puts data on devices, while there is a proxy or one that was lost is referenced.

It refuses the devices of a lost proxy. JAX identifies an array on a proxy by a number that the client chose, and the
next client chooses the same numbers again; and a program that receives an array which was put on devices of a closed
connection aborts the whole process, inside JAX's C++ code.

And it asks a proxy for the layouts of arrays while that answers, before JAX does. Before the first program with
arguments of a new dtype and shape, jaxlib asks for their default layout, and holds Python's lock until the answer
comes. If the connection is interrupted at that moment, no thread of the kernel runs until it is back: panels stand
still, and an Interrupt does nothing. So the layout is asked for soon after an array of one number has arrived: JAX
waits for that without the lock, and until an Interrupt. jaxlib keeps the answer. What programs return has its layout
from their compilation.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from typing import Any

from pathways_jupyter.base.sentences import Face, advice, worded
from pathways_jupyter.session.kernel import jax_internals, process

_FRESH_SECONDS = 0.25
"""How long an answer shows that there is a connection: a tree of a hundred arrays need not wait for a hundred more."""

# Reentrant: a finalizer may replace the function while this thread does.
_lock = threading.RLock()
_original: Any = None
_lost: weakref.WeakSet[Any] = weakref.WeakSet()
_layouts: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
"""What the present proxy's client has been asked for."""
_answered_at = -1.0


def ask_layouts(client: Any) -> None:
    """Ask for the layouts of what is put on devices of `client`, from now on; of none when it is None."""
    _layouts.clear()
    if client is not None:
        _layouts[client] = set()
    _replace_or_restore()


def forbid(client: Any) -> None:
    """Make putting data on devices of `client` an error from now on; may be called on any thread."""
    with _lock:
        if client in _lost:
            return
        # Finalizers and weak references run in reverse order of registration. The WeakSet's own reference is made
        # second and so called first: `client` has left the set when the other one checks whether it is empty.
        weakref.finalize(client, _replace_or_restore).atexit = False
        _lost.add(client)
        _replace_or_restore()


def _replace_or_restore() -> None:
    global _original
    jaxlib = jax_internals.load().client
    with _lock:
        needed = bool(_lost or _layouts)
        if needed and _original is None:
            _original, jaxlib.batched_device_put = jaxlib.batched_device_put, _put
        elif not needed and _original is not None:
            jaxlib.batched_device_put, _original = _original, None


def _put(aval: Any, sharding: Any, xs: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
    global _answered_at
    import jax
    import numpy as np

    # Taken once: another thread may restore it meanwhile.
    put = _original or jax_internals.load().client.batched_device_put
    device = devices[0] if devices else None
    client = None if device is None else device.client
    if client is not None and client in _lost:
        face = Face.SCRIPT if process.shell() is None else Face.NOTEBOOK
        raise jax.errors.JaxRuntimeError(
            f"UNAVAILABLE: {device} belongs to a proxy that is gone. "
            + worded(advice("{reconnect} gets a new one; make meshes and shardings from jax.devices() again."), face)
        )
    known = None if client is None else _layouts.get(client)
    # Neither keys nor strings have a layout of their own.
    if known is None or jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended) or aval.dtype.kind == "T":
        return put(aval, sharding, xs, devices, *args, **kwargs)
    layout = (sharding.shard_shape(aval.shape), aval.dtype, sharding.memory_kind)
    if layout in known:
        return put(aval, sharding, xs, devices, *args, **kwargs)
    if time.monotonic() - _answered_at > _FRESH_SECONDS:
        number, alone = np.zeros((), np.int8), jax.sharding.SingleDeviceSharding(device)
        put(jax.core.ShapedArray((), number.dtype), alone, [number], [device]).block_until_ready()
    array = put(aval, sharding, xs, devices, *args, **kwargs)
    # A server that knows no layouts, or that is lost now: JAX says so where it needs one.
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        array._pjrt_layout  # noqa: B018
    known.add(layout)
    _answered_at = time.monotonic()
    return array
