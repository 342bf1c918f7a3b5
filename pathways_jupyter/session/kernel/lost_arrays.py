"""Invalidate the arrays and devices of a lost proxy, so that using them raises a clear error.

JAX identifies an array on a proxy by a number that the client chose, and the next client chooses the same numbers
again: a program that is passed an old array would silently compute with another one. And a program that receives an
array which was put on devices of a closed connection aborts the whole process, inside JAX's C++ code. So the arrays are
deleted, and putting data on such devices is an error.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from pathways_jupyter.base.hints import Face
from pathways_jupyter.base.sentences import advice, worded
from pathways_jupyter.session.kernel import device_puts, process

_gone: weakref.WeakSet[Any] = weakref.WeakSet()


def forbid(client: Any) -> None:
    """Make putting data on devices of `client` an error from now on; may be called on any thread."""
    with device_puts.lock:
        if client in _gone:
            return
        # Finalizers and weak references run in reverse order of registration. The WeakSet's own reference is made
        # second and so called first: `client` has left the set when _restore_if_unused() checks whether it is empty.
        weakref.finalize(client, _restore_if_unused).atexit = False
        _gone.add(client)
        device_puts.add(_refuse)


def delete_arrays(client: Any) -> None:
    """Delete every array on devices of `client`, on the thread that runs the user's code only."""
    for array in client.live_arrays():
        # It may raise because the connection is closed; the array is deleted anyway.
        with contextlib.suppress(Exception):
            array.delete()


def _refuse(aval: Any, sharding: Any, device: Any) -> None:
    del aval, sharding
    if device.client in _gone:
        import jax

        face = Face.SCRIPT if process.shell() is None else Face.NOTEBOOK
        raise jax.errors.JaxRuntimeError(
            f"UNAVAILABLE: {device} belongs to a proxy that is gone. "
            + worded(advice("{reconnect} gets a new one; make meshes and shardings from jax.devices() again."), face)
        )


def _restore_if_unused() -> None:
    """Restore JAX's function once no lost client is referenced any more."""
    with device_puts.lock:
        if not _gone:
            device_puts.remove(_refuse)
