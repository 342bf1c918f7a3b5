"""Silence the C++ logs of JAX while a proxy's client exists.

The client logs a warning for plaintext credentials and, once its connection has ended, a line for every program that it
can no longer destroy. A notebook would show these lines inside the user's cell, long after disconnecting, whenever
Python happens to drop the last reference. They carry no news: the session's events report the same, and failures raise.
There is one threshold for all C++ code of JAX, so it is restored as early as possible.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from pathways_jupyter.session.kernel import jax_internals

_LEVELS = {"DEBUG": 0, "INFO": 0, "WARNING": 1, "WARN": 1, "ERROR": 2, "FATAL": 3, "CRITICAL": 3}
_LATE_LINES_SECONDS = 1.0
"""Longest time for which a closed client may still log, on its own threads."""

# Reentrant: finalizers run on the thread that drops the last reference, which may hold the lock already.
_lock = threading.RLock()
_reasons = 0


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Log only fatal errors inside the block and for a moment after it."""
    _begin()
    try:
        yield
    finally:
        _end()


class SilencedLogs:
    """Silences the logs as :func:`silenced` does, from its creation until :meth:`end`."""

    def __init__(self) -> None:
        # Called once, at the latest when this is collected: an interrupted switch of JAX may not come to its end.
        self._over = weakref.finalize(self, _end)
        self._over.atexit = False
        _begin()

    def end(self, client: Any) -> None:
        """End the silence; while a program of `client` is still referenced, only once that client is collected.

        Args:
          client: None if it could not be made.
        """
        if client is not None and client.live_executables():
            gc.collect()
        if client is not None and client.live_executables():
            _begin()
            # Not at exit: programs that are destroyed then are logged as well.
            weakref.finalize(client, _end).atexit = False
        self._over()


def _begin() -> None:
    global _reasons
    with _lock:
        _reasons += 1
        _set(_LEVELS["FATAL"])


def _end() -> None:
    global _reasons
    with _lock:
        _reasons -= 1
        if _reasons:
            return
    timer = threading.Timer(_LATE_LINES_SECONDS, _restore)
    timer.daemon = True
    # No new thread can be started while Python shuts down.
    with contextlib.suppress(RuntimeError):
        timer.start()


def _restore() -> None:
    import jax

    with _lock:
        if not _reasons:
            configured = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
            started_with = int(configured) if configured.isdecimal() else _LEVELS["WARNING"]
            _set(_LEVELS.get(jax.config.jax_logging_level or "", started_with))


def _set(level: int) -> None:
    jax_internals.load().logging.absl_set_min_log_level(level)
