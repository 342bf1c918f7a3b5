"""Make ``pathwaysutils.initialize()`` harmless during a session.

Scripts written for Pathways call it at their start. It registers a client for the platform ``proxy``, which JAX refuses
when that platform is in use; during a session it is, so the call would always raise. It also replaces functions of
``jax.profiler`` by ones that only a Pathways proxy can serve, and turns off JAX's compilation cache. So that
registration is skipped during a session, whose own client serves the platform already, and the other changes are undone
when the session ends.
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
    """Records JAX's present state; active from :meth:`engage` until :meth:`undo`.

    Attributes:
      register: JAX's own function for registering a client.
    """

    def __init__(self, platform: str) -> None:
        import jax

        internals = jax_internals.load()
        self._platform = platform
        self.register = internals.bridge.register_backend_factory
        # The public module has its own reference to the function, which is the one that pathwaysutils calls.
        self._modules = (internals.bridge, internals.backend)
        modules = (internals.profiler, jax.profiler)
        self._functions = [(module, name, getattr(module, name)) for module in modules for name in _PROFILER_NAMES]
        self._caches = getattr(jax.config, _CACHE_SETTING)
        self._calls = _calls()

    def engage(self) -> None:
        """Skip the registration by pathwaysutils from now on."""
        for module in self._modules:
            setattr(module, _REGISTER, self._register_unless_served)

    def undo(self) -> None:
        """Restore what was replaced here, and what ``initialize()`` has changed since."""
        import jax

        for module in self._modules:
            if getattr(module, _REGISTER) == self._register_unless_served:
                setattr(module, _REGISTER, self.register)
        changed = [
            (module, name, function)
            for module, name, function in self._functions
            if getattr(module, name) is not function and is_peers(getattr(module, name))
        ]
        if not changed:
            return
        # The functions last: a second attempt after an Interrupt finds out by them that there is something to undo.
        jax.config.update(_CACHE_SETTING, self._caches)
        if _calls() is not None:
            # Only the first call of initialize() has an effect, so the undone one must not count.
            sys.modules[_COUNTING]._initialization_count = self._calls or 0  # type: ignore[attr-defined]
        for module, name, function in changed:
            setattr(module, name, function)

    def _register_unless_served(self, name: str, factory: Any, **options: Any) -> None:
        """Register as JAX does, but skip pathwaysutils' client for a platform in use."""
        if name == self._platform and is_peers(factory):
            return
        self.register(name, factory, **options)


def is_peers(function: Any) -> bool:
    """Return whether pathwaysutils has made `function`."""
    module = str(getattr(function, "__module__", ""))
    return module.partition(".")[0] == _PEER


def _calls() -> int | None:
    """Return how often ``initialize()`` was called; None if pathwaysutils is not loaded or does not count."""
    count = getattr(sys.modules.get(_COUNTING), "_initialization_count", None)
    return count if isinstance(count, int) else None
