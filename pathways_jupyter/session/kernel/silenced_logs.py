"""Keep JAX's C++ side from logging while there is something of a proxy.

Its client logs a warning for plaintext credentials and, once its connection has ended, a line for every program that it
cannot destroy any more: lines that a notebook would show inside the user's cell, long after disconnecting, whenever
Python happens to drop the last reference. What they say, the session's own events say, and what fails raises. The
threshold is one for all of JAX's C++ side, so it is put back as soon as it may be.
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
_LAST_WORDS_SECONDS = 1.0
"""How long a client may still log about what is gone, on threads of its own."""

# Finalizers run on whichever thread drops the last reference, also on one that holds the lock.
_lock = threading.RLock()
_reasons = 0


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Nothing but what ends the process is logged inside the block, nor a moment after."""
    _begin()
    try:
        yield
    finally:
        _end()


class SilencedLogs:
    """The same from when it is made until :meth:`end`."""

    def __init__(self) -> None:
        _begin()

    def end(self, client: Any) -> None:
        """Speaks again, unless somebody holds a program of `client`: then once that client is gone.

        Args:
          client: None when there was none after all.
        """
        if client is not None and client.live_executables():
            gc.collect()
        if client is not None and client.live_executables():
            _begin()
            # Not at exit: what is destroyed then is logged as well.
            weakref.finalize(client, _end).atexit = False
        _end()


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
    timer = threading.Timer(_LAST_WORDS_SECONDS, _restore)
    timer.daemon = True
    # Python, when it ends, takes no new threads.
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
