"""Register the client of a Pathways proxy as JAX's platform ``proxy``; runs in the program that uses it.

Plain JAX contains that client but registers it nowhere. Libraries for Pathways register it when their initialization
function is called; this does the same for programs that call none.
"""

from __future__ import annotations

import atexit
import os
from typing import Any

from pathways_jupyter.session.kernel import jax_internals, timer_slack
from pathways_jupyter.session.kernel.initialize import InitializeGuard, is_peers
from pathways_jupyter.session.kernel.silenced_logs import SilencedLogs, silenced
from pathways_jupyter.session.variables import PLATFORM, PLATFORMS, TARGET

_CONNECT_SECONDS = 60
_TIMEOUT_VARIABLE = "PATHWAYS_PROXY_CONNECTION_TIMEOUT_SECS"
"""The variable by which pathwaysutils sets the same timeout."""


def register_if_asked() -> None:
    """Make the platform available if the environment asks for it and the program has not registered one itself.

    A later ``pathwaysutils.initialize()`` would fail, because JAX refuses to register a platform that is in use; from
    here on it keeps the client that is in use.

    Raises:
      SessionError: This version of JAX lacks what is needed.
    """
    if not os.environ.get(TARGET) or PLATFORM not in os.environ.get(PLATFORMS, "").split(","):
        return
    registered = jax_internals.load().bridge._backend_factories.get(PLATFORM)
    if registered is None:
        guard = InitializeGuard(PLATFORM)
        guard.register(PLATFORM, _client, priority=-1, fail_quietly=False)
        guard.engage()
    elif not is_peers(registered.factory):
        # A session of this process: the variables in its environment are for its children.
        return
    # The client logs a stack trace when the program's exit closes its connection.
    atexit.register(SilencedLogs)


def _client() -> Any:
    import jax

    ifrt_proxy = jax_internals.load().backend.ifrt_proxy
    options = ifrt_proxy.ClientConnectionOptions()
    given = os.environ.get(_TIMEOUT_VARIABLE, "")
    options.connection_timeout_in_seconds = int(given) if given.isdecimal() else _CONNECT_SECONDS
    with silenced(), timer_slack.inherited():
        return ifrt_proxy.get_client(jax.config.read("jax_backend_target"), options)
