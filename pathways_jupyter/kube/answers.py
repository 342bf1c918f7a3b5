"""Decode what an API server answers."""

from __future__ import annotations

import gc
import json
from typing import Any

from pathways_jupyter.errors import ClusterError

LARGE_BYTES = 256 * 1024
"""From this length on, an answer is decoded without the garbage collector."""


def decode(answer: bytes, server: str) -> dict[str, Any]:
    """Return an answer's JSON object; an empty one for an empty answer.

    Args:
      server: Where it came from, for the error.

    Raises:
      ClusterError: It is not a JSON object.
    """
    try:
        decoded = _loads(answer) if answer else {}
    except ValueError as error:
        raise _not_an_object(server) from error
    if not isinstance(decoded, dict):
        raise _not_an_object(server)
    return decoded


def _loads(answer: bytes) -> Any:
    if len(answer) < LARGE_BYTES or not gc.isenabled():
        return json.loads(answer)
    # The collector would walk the new objects again and again, and could free none of them: with pages of a few hundred
    # pods that was a third of the time.
    gc.disable()
    try:
        return json.loads(answer)
    finally:
        gc.enable()


def _not_an_object(server: str) -> ClusterError:
    return ClusterError(
        f"The answer of {server} is not a Kubernetes object.",
        hint="Check that the kubeconfig's server is an API server.",
    )
