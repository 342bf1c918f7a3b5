"""All private names of JAX that this process reaches into.

JAX has no public API to exchange the devices of a running process, so the switch reaches into its table of clients, the
function that puts data on devices, and the log level of its C++ side; an interrupted colocated call is left behind by
the order of a thread's calls. All of these names are looked up together, before anything changes, so a JAX that has
moved one of them raises an error instead of being half switched.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.errors import SessionError

_MODULES: Mapping[str, str] = {
    "bridge": "jax._src.xla_bridge",
    "backend": "jax.extend.backend",
    "client": "jaxlib.xla_client",
    "dispatch": "jax._src.dispatch",
    "logging": "jaxlib.utils",
    "profiler": "jax._src.profiler",
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
      streams: jaxlib's C++ bindings, with the order of a thread's calls.
    """

    bridge: Any
    backend: Any
    client: Any
    dispatch: Any
    logging: Any
    profiler: Any
    streams: Any


def has_clients() -> bool:
    """Return whether this process has made a client of JAX's; imports nothing."""
    return bool(getattr(sys.modules.get(_MODULES["bridge"]), "_backends", None))


@functools.cache
def load() -> Internals:
    """Look up all names.

    Raises:
      SessionError: This version of JAX lacks some of them; the message lists which.
    """
    import jax

    modules, missing = {}, []
    for name, path in _MODULES.items():
        try:
            modules[name] = importlib.import_module(path)
        except ImportError:
            missing.append(path)
            continue
        missing += [f"{path}.{each}" for each in _NAMES[name] if not hasattr(modules[name], each)]
    if missing:
        raise SessionError(
            f"JAX {jax.__version__} cannot be switched: it has no {', '.join(missing)}.",
            hint="Install a version of JAX that docs/installation.md lists.",
        )
    return Internals(**modules)
