"""Make clients of a Pathways proxy, and register them as JAX's platform ``proxy`` in programs that ask for it.

Plain JAX contains that client but registers it nowhere. Libraries for Pathways register it when their initialization
function is called; this does the same for programs that call none.

During a session that function, ``pathwaysutils.initialize()``, must be harmless: scripts written for Pathways call it
at their start. JAX refuses to register a client for a platform that is in use, so the call would always raise. It also
replaces functions of ``jax.profiler`` by ones that only a Pathways proxy can serve, and turns off JAX's compilation
cache. So its registration is skipped, as the session's own client serves the platform already, and the other changes
are undone when the session ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Any

from pathways_jupyter.session.kernel import device_puts, jax_internals
from pathways_jupyter.session.kernel.silenced_logs import SilencedLogs, silenced
from pathways_jupyter.session.variables import PLATFORM, PLATFORMS, TARGET

_CONNECT_SECONDS = 60
_TIMEOUT_VARIABLE = "PATHWAYS_PROXY_CONNECTION_TIMEOUT_SECS"
"""The variable by which pathwaysutils sets the same timeout."""
_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30
"""Names of operations of Linux's prctl(2)."""
_SLACK_NANOSECONDS = 5_000_000
"""An idle kernel uses 2 % of a core with 1 ms, 0.5 % with 5 ms and 0.2 % with 20 ms; a tiny operation takes as long."""
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


def register_if_asked() -> None:
    """Make the platform available if the environment asks for it and the program has not registered one itself.

    A later ``pathwaysutils.initialize()`` would fail, because JAX refuses to register a platform that is in use; from
    here on it keeps the client that is in use.

    Raises:
      SessionError: This version of JAX lacks what is needed.
    """
    if not os.environ.get(TARGET) or PLATFORM not in os.environ.get(PLATFORMS, "").split(","):
        return
    bridge = jax_internals.load().bridge
    registered = bridge._backend_factories.get(PLATFORM)
    # From 0.12 on JAX registers a client itself. Neither that one nor the peer's is adapted as that of a session is.
    others = (getattr(bridge, "make_ifrt_proxy_client", None),)
    if registered is None or registered.factory in others or is_peers(registered.factory):
        guard = InitializeGuard(PLATFORM)
        guard.register(PLATFORM, _client, priority=-1, fail_quietly=False)
        guard.engage()
    else:
        # A session of this process: the variables in its environment are for its children.
        return
    # The client logs a stack trace when the program's exit closes its connection.
    atexit.register(SilencedLogs)


def _client() -> Any:
    import jax

    timeout = os.environ.get(_TIMEOUT_VARIABLE, "")
    seconds = int(timeout) if timeout.isdecimal() else _CONNECT_SECONDS
    client = new_client(jax.config.read("jax_backend_target"), seconds)
    device_puts.ask_layouts(client)
    # Its threads must not ask while the interpreter ends.
    atexit.register(device_puts.ask_layouts, None)
    return client


def new_client(target: str, seconds: int) -> Any:
    """Return a client of the proxy at `target`, which has to answer within so many seconds; raises what JAX does."""
    ifrt_proxy = jax_internals.load().backend.ifrt_proxy
    options = ifrt_proxy.ClientConnectionOptions()
    options.connection_timeout_in_seconds = max(1, seconds)
    with silenced(), late_timers():
        return ifrt_proxy.get_client(target, options)


@contextlib.contextmanager
def late_timers() -> Iterator[None]:
    """Allow timers to be late on this thread inside the block, and on the threads that it starts for good.

    One of gRPC's threads sleeps 50 microseconds at a time for as long as the client exists: some 5,000 wake-ups a
    second, 5 to 9 % of a core. Data that arrives wakes other threads, so only gRPC's own timers come later if this one
    sleeps longer. No-op on systems other than Linux.
    """
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    before = prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NANOSECONDS), 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(before), 0, 0, 0)
