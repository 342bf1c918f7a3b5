"""Errors of elastic training, and which of JAX's errors mean that a slice is gone."""

from __future__ import annotations

import re

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.elastic.arguments import check_whole

_SLICE_DOWN = ("DATA_LOSS", "DEADLINE_EXCEEDED", "NOT_FOUND", "INTERNAL")
"""The last three Pathways may answer while it notices that a worker is gone; pathwaysutils reads them as a loss too."""
_NAMED = re.compile(r"\bworkers? of slices? (\d+(?:(?:, | and |, and )\d+)*)\b")
_PROXY_GONE = ("UNAVAILABLE", "Connection to IFRT proxy server was terminated")


class ElasticRuntimeError(PathwaysError, RuntimeError):
    """Training cannot continue: too few slices, no usable snapshot, or no more attempts."""


class ProxyLostError(ElasticRuntimeError):
    """The proxy is gone, and all arrays on TPUs with it."""


class ScaleUpSignalError(Exception):
    """Raised by user code at a step boundary, to be called again with the slices that have become available."""


class ElasticRetryLimit:
    """A retry policy that limits the number of attempts.

    Args:
      max_attempts: Attempts in all, the first one included.

    Raises:
      ArgumentError: `max_attempts` is no whole number of at least 1.
    """

    def __init__(self, max_attempts: int) -> None:
        check_whole("max_attempts", max_attempts, at_least=1)
        self.max_attempts = max_attempts

    def __call__(self, attempt: int, error: Exception) -> bool:
        """Return whether there may be another attempt after number `attempt`, counted from 1."""
        return attempt < self.max_attempts


def is_slice_down(error: BaseException) -> bool:
    """Return whether `error` is JAX's, and means (or may mean) that a slice is gone."""
    import jax

    return isinstance(error, jax.errors.JaxRuntimeError) and any(kind in str(error) for kind in _SLICE_DOWN)


def slices_named(error: BaseException) -> frozenset[int]:
    """Return the slices, by JAX's index, whose data `error` says are lost; none where it does not say."""
    text = str(error)
    found = _NAMED.findall(text) if "DATA_LOSS" in text else ()
    return frozenset(int(number) for each in found for number in re.findall(r"\d+", each))


def is_proxy_gone(error: BaseException) -> bool:
    """Return whether `error` is JAX's, and means that the proxy is gone, and all arrays with it."""
    import jax

    return isinstance(error, jax.errors.JaxRuntimeError) and any(kind in str(error) for kind in _PROXY_GONE)
