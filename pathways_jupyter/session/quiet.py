"""Keep JAX's C++ side from logging while a proxy's client is there.

The client logs a warning for plaintext credentials and, once its connection has ended, a line for every array and
program that it cannot destroy any more: lines that a notebook would show inside the user's cell, long after
disconnecting, whenever Python happens to drop the last variable. What they say, the session's own events say, and what
fails raises. The threshold is one for all of JAX's C++ side, so it is put back as soon as the last client is gone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

_LEVELS = {"DEBUG": 0, "INFO": 0, "WARNING": 1, "WARN": 1, "ERROR": 2, "FATAL": 3, "CRITICAL": 3}
_LAST_WORDS_SECONDS = 1.0
"""How long a client that is gone may still log, on threads of its own."""

# Finalizers run on whichever thread drops the last reference, also on one that holds the lock.
_lock = threading.RLock()
_reasons = 0


@contextlib.contextmanager
def meanwhile() -> Iterator[None]:
    """Nothing but what ends the process is logged inside the block, nor a moment after."""
    _begin()
    try:
        yield
    finally:
        _end()


def until_gone(client: Any) -> None:
    """The same for as long as `client` is there: the last of its arrays may outlive the connection by hours."""
    _begin()
    # Not at exit: what is destroyed then is logged as well.
    weakref.finalize(client, _end).atexit = False


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
    timer = threading.Timer(_LAST_WORDS_SECONDS, _speak)
    timer.daemon = True
    # Python, when it ends, takes no new threads.
    with contextlib.suppress(RuntimeError):
        timer.start()


def _speak() -> None:
    import jax

    with _lock:
        if not _reasons:
            configured = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
            started_with = int(configured) if configured.isdecimal() else _LEVELS["WARNING"]
            _set(_LEVELS.get(jax.config.jax_logging_level or "", started_with))


def _set(level: int) -> None:
    from jaxlib import utils

    utils.absl_set_min_log_level(level)
