"""Interrupted calls of JAX's own ``@colocated_python``, which do not go through :mod:`pathways_jupyter.colocated`."""

from __future__ import annotations

import secrets
import sys
import traceback

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.session.kernel import jax_internals

_MODULE = "jax.experimental.colocated_python.func"


def leave_behind(error: BaseException) -> str:
    """After an Interrupt, let this thread's next colocated calls not wait for those that still run.

    JAX promises that the calls of a thread run in turn, so an endless one would hold all later ones up without a word.
    Nothing can stop it from here: JAX sends a host no request to end a call.

    Returns:
      A line for the user; empty if it was not a colocated call that was interrupted. That JAX lacks a name is one too.
    """
    if _MODULE not in sys.modules:
        return ""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    # A later call returns at once, and the wait for its result is anywhere in JAX.
    if any("/jax/" in name.replace("\\", "/") for name in frames):
        try:
            jax_internals.load().streams.set_execution_stream_id(1 + secrets.randbelow(2**60))
        except SessionError as error:
            return str(error)
    if not any("colocated_python" in name for name in frames):
        return ""
    return advice(
        "The colocated call may still run on its hosts; later calls do not wait for it. {colocated_restart} ends it."
    )
