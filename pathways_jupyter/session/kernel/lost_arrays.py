"""What is left in a kernel of a proxy that is gone: arrays and devices that must fail clearly, and not otherwise.

JAX knows an array on a proxy by a number that the proxy's client chose, and the next client chooses the same numbers
again: a program that is given an array of before would compute with whatever has its number now. And the first program
that meets an array which was put on devices of a connection that has ended aborts the whole process, inside JAX's C++
side. So the arrays are deleted, and nothing can be put on such devices any more.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

from pathways_jupyter.session.kernel import jax_internals, process
from pathways_jupyter.wording import Face, worded

_lock = threading.RLock()
_gone: weakref.WeakSet[Any] = weakref.WeakSet()
_original: Any = None


def forbid(client: Any) -> None:
    """From now on, putting data on devices of `client` is an error; may be called on any thread."""
    global _original
    jaxlib = jax_internals.load().client
    with _lock:
        if client in _gone:
            return
        # What is registered last is called first, and is not to find it in the set any more.
        weakref.finalize(client, _let_go).atexit = False
        _gone.add(client)
        if _original is None:
            _original, jaxlib.batched_device_put = jaxlib.batched_device_put, _put


def delete_arrays(client: Any) -> None:
    """Deletes every array on devices of `client`, whoever holds it; on the thread that runs the user's code only."""
    for array in client.live_arrays():
        # One whose connection is gone may say so; it is deleted all the same.
        with contextlib.suppress(Exception):
            array.delete()


def _put(aval: Any, sharding: Any, xs: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
    for device in devices[:1]:
        if device.client in _gone:
            import jax

            face = Face.SCRIPT if process.shell() is None else Face.NOTEBOOK
            raise jax.errors.JaxRuntimeError(
                f"UNAVAILABLE: {device} belongs to a proxy that is gone. "
                + worded(
                    "%pathways reconnect gets a new one; make meshes and shardings from jax.devices() again.", face
                )
            )
    return _original(aval, sharding, xs, devices, *args, **kwargs)


def _let_go() -> None:
    """Leaves JAX as it was found once nobody has such a device any more."""
    global _original
    with _lock:
        if _original is not None and not _gone:
            jax_internals.load().client.batched_device_put = _original
            _original = None
