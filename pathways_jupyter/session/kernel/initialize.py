"""Make ``pathwaysutils.initialize()`` harmless while a session has JAX.

Scripts written for Pathways call it once TPUs are there. It registers a client for the platform ``proxy``, which JAX
refuses when that platform is in use; a session's is, so the call would always raise. It also replaces functions of
``jax.profiler`` by ones that only a Pathways proxy can serve, and turns JAX's compilation cache off. So that one
registration is left out during a session, whose own client serves the platform already, and when the session ends the
other changes are undone, as if the call had not been made.
"""

from __future__ import annotations

import sys
from typing import Any

from pathways_jupyter.session.kernel import jax_internals

_PEER = "pathwaysutils"
_COUNTING = f"{_PEER}._initialize"
_REGISTER = "register_backend_factory"
_CACHE_SETTING = "jax_enable_compilation_cache"
_PROFILER_NAMES = ("start_server", "start_trace", "stop_server", "stop_trace", "trace")


class InitializeGuard:
    """Remembers JAX as it is now; in force from :meth:`engage` until :meth:`undo`.

    Attributes:
      register: JAX's own function for registering a client.
    """

    def __init__(self, platform: str) -> None:
        import jax

        internals = jax_internals.load()
        self._platform = platform
        self.register = internals.bridge.register_backend_factory
        # The public module holds a reference of its own, and that is the one which pathwaysutils calls.
        self._doors = (internals.bridge, internals.backend)
        modules = (internals.profiler, jax.profiler)
        self._functions = [(module, name, getattr(module, name)) for module in modules for name in _PROFILER_NAMES]
        self._caches = getattr(jax.config, _CACHE_SETTING)
        self._calls = _calls()

    def engage(self) -> None:
        """Leave the peer's registration out from now on."""
        for door in self._doors:
            setattr(door, _REGISTER, self._register_unless_served)

    def undo(self) -> None:
        """Put back what was replaced here, and what ``initialize()`` changed meanwhile."""
        import jax

        for door in self._doors:
            if getattr(door, _REGISTER) == self._register_unless_served:
                setattr(door, _REGISTER, self.register)
        changed = [
            (module, name, function)
            for module, name, function in self._functions
            if getattr(module, name) is not function and _is_peers(getattr(module, name))
        ]
        if not changed:
            return
        # The functions last: they are what a second attempt after an Interrupt goes by.
        jax.config.update(_CACHE_SETTING, self._caches)
        if _calls() is not None:
            # Only the first call does anything, so the one that is undone here must not count.
            sys.modules[_COUNTING]._initialization_count = self._calls or 0  # type: ignore[attr-defined]
        for module, name, function in changed:
            setattr(module, name, function)

    def _register_unless_served(self, name: str, factory: Any, **options: Any) -> None:
        """JAX's own function, except that pathwaysutils' client for a platform in use is not registered."""
        if name == self._platform and _is_peers(factory):
            return
        self.register(name, factory, **options)


def _is_peers(function: Any) -> bool:
    module = str(getattr(function, "__module__", ""))
    return module.partition(".")[0] == _PEER


def _calls() -> int | None:
    """How often ``initialize()`` was called in this process; None where pathwaysutils is not loaded or does not say."""
    count = getattr(sys.modules.get(_COUNTING), "_initialization_count", None)
    return count if isinstance(count, int) else None
