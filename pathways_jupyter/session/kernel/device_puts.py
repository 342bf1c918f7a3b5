"""Call hooks before JAX puts data on devices; JAX's function is replaced only while there are any."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pathways_jupyter.session.kernel import jax_internals

Hook = Callable[[Any, Any, Any], Callable[[Any], object] | None]
"""Called with the array's abstract value, its sharding, and one of its devices; what it raises, the put raises.

What it returns is called with the array.
"""

lock = threading.RLock()
"""Held while the hooks change; shared, as a finalizer may change them while another change is under way."""
_hooks: tuple[Hook, ...] = ()
_original: Any = None


def add(hook: Hook) -> None:
    """Call `hook` before each put from now on, as the first of the hooks: so a put that it refuses reaches no other."""
    global _hooks, _original
    jaxlib = jax_internals.load().client
    with lock:
        _hooks = (hook, *(each for each in _hooks if each is not hook))
        if _original is None:
            _original, jaxlib.batched_device_put = jaxlib.batched_device_put, _put


def remove(hook: Hook) -> None:
    """Call `hook` no more, and restore JAX's function if no other is left."""
    global _hooks, _original
    with lock:
        _hooks = tuple(each for each in _hooks if each is not hook)
        if not _hooks and _original is not None:
            jax_internals.load().client.batched_device_put, _original = _original, None


def put(aval: Any, sharding: Any, xs: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
    """Put data on devices without any hook."""
    # Taken once: another thread may restore it meanwhile.
    original = _original or jax_internals.load().client.batched_device_put
    return original(aval, sharding, xs, devices, *args, **kwargs)


def _put(aval: Any, sharding: Any, xs: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
    called = [hook(aval, sharding, device) for device in devices[:1] for hook in _hooks]
    made = put(aval, sharding, xs, devices, *args, **kwargs)
    for each in called:
        if each is not None:
            each(made)
    return made
