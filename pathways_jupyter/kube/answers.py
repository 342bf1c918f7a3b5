"""Decode what an API server answers."""

from __future__ import annotations

import gc
import json
import re
from typing import Any

from pathways_jupyter.base.errors import ClusterError

DEEPEST = 100
"""Nesting of an object beyond which nothing is kept, where an answer is nested more deeply than Python can decode."""
LARGE_BYTES = 256 * 1024
"""From this length on, an answer is decoded without the garbage collector."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')


def decode(answer: bytes, server: str) -> dict[str, Any]:
    """Return an answer's JSON object; an empty one for an empty answer.

    Args:
      server: Where it came from, for the error.

    Raises:
      ClusterError: It is not a JSON object.
    """
    try:
        decoded = loads(answer) if answer else {}
        if not isinstance(decoded, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise ClusterError(
            f"The answer of {server} is not a Kubernetes object.",
            hint="Check that the kubeconfig's server is an API server.",
        ) from error
    return decoded


def loads(answer: bytes) -> Any:
    """Return the value of an answer's JSON.

    Any user may store an object that is nested thousands of levels deep where a schema allows unknown fields. It must
    not keep all others from reading the list that it is in, so what is too deep is replaced by null.

    Raises:
      ValueError: It is not JSON.
    """
    try:
        return _loads(answer)
    except RecursionError:
        return _loads(_cut(answer))


def _cut(answer: bytes) -> bytes:
    """Return JSON with null in place of what is nested more than :data:`DEEPEST` levels deep."""
    result, depth, copied = bytearray(), 0, 0
    for token in _TOKEN.finditer(answer):
        if token[0] in b"{[":
            depth += 1
            if depth == DEEPEST + 1:
                result += answer[copied : token.start()] + b"null"
        elif token[0] in b"}]":
            if depth == DEEPEST + 1:
                copied = token.end()
            depth -= 1
    return bytes(result) + answer[copied:]


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
