"""All private names of JAX that this process reaches into.

JAX has no public API to exchange the devices of a running process, so the switch reaches into its table of clients, the
function that puts data on devices, and the log level of its C++ side. All of these names are looked up together, before
anything changes, so a JAX that has moved one of them raises an error instead of being half switched. Those of colocated
calls are looked up when one is interrupted, because not every session imports that part of JAX.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from pathways_jupyter.base.errors import SessionError

_MODULES: Mapping[str, str] = {
    "bridge": "jax._src.xla_bridge",
    "backend": "jax.extend.backend",
    "client": "jaxlib.xla_client",
    "dispatch": "jax._src.dispatch",
    "logging": "jaxlib.utils",
    "profiler": "jax._src.profiler",
    "colocated": "jax.experimental.colocated_python.func",
    "streams": "jaxlib._jax",
}
_NAMES: Mapping[str, tuple[str, ...]] = {
    "bridge": (
        "_backend_errors",
        "_backend_factories",
        "_backend_lock",
        "_backends",
        "_default_backend",
        "_init_backend",
        "register_backend_factory",
    ),
    "backend": ("clear_backends", "ifrt_proxy", "register_backend_factory"),
    "client": ("batched_device_put",),
    "dispatch": ("runtime_tokens",),
    "logging": ("absl_set_min_log_level",),
    "profiler": ("_profiler", "start_server", "start_trace", "stop_server", "stop_trace", "trace"),
    "colocated": ("_uncached_get_specialized_func",),
    "streams": ("set_execution_stream_id",),
}
"""The names used of each module; a test compares them with the sources."""


@dataclass(frozen=True)
class Internals:
    """JAX's modules that hold the names above.

    Attributes:
      bridge: The table of clients, and the factories that make them.
      backend: The public module for the same table; has its own reference to the registering function.
      client: jaxlib's C++ bindings.
      dispatch: Effects that are still pending.
      logging: The log level of JAX's C++ side.
      profiler: What ``pathwaysutils.initialize()`` replaces, and jaxlib's own profiler.
    """

    bridge: Any
    backend: Any
    client: Any
    dispatch: Any
    logging: Any
    profiler: Any


@dataclass(frozen=True)
class CallInternals:
    """JAX's modules that hold the names which leaving an interrupted colocated call behind needs.

    Attributes:
      colocated: The calls, of which the first waits for a host's description of the result.
      streams: jaxlib's C++ bindings, with the order of a thread's calls.
    """

    colocated: Any
    streams: Any


def has_clients() -> bool:
    """Return whether this process has made a client of JAX's; imports nothing."""
    return bool(getattr(sys.modules.get(_MODULES["bridge"]), "_backends", None))


_Internals = TypeVar("_Internals", Internals, CallInternals)


@functools.cache
def load() -> Internals:
    """Look up all names that the switch needs.

    Raises:
      SessionError: This version of JAX lacks some of them; the message lists which.
    """
    return _look_up(Internals, "cannot be switched")


@functools.cache
def load_calls() -> CallInternals:
    """Look up the names of colocated calls.

    Raises:
      SessionError: As for :func:`load`.
    """
    return _look_up(CallInternals, "cannot leave an interrupted colocated call behind, and later ones wait for it")


def _look_up(kind: type[_Internals], lacks: str) -> _Internals:
    import jax

    modules, missing = {}, []
    for field in fields(kind):
        path = _MODULES[field.name]
        try:
            modules[field.name] = importlib.import_module(path)
        except ImportError:
            missing.append(path)
            continue
        missing += [f"{path}.{name}" for name in _NAMES[field.name] if not hasattr(modules[field.name], name)]
    if missing:
        raise SessionError(
            f"JAX {jax.__version__} {lacks}: it has no {', '.join(missing)}.",
            hint="Install a version of JAX that docs/installation.md lists.",
        )
    return kind(**modules)
