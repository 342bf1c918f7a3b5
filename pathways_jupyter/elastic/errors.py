"""Errors of elastic training: which of JAX's errors mean that a slice is gone, and checks of what users give.

A wrong argument must not show up hours later, at the first loss: a typing error in a rule would change what is trained,
and a run that needs more slices than there are would wait for them without end. The checks raise :class:`ArgumentError`
before anything has been changed.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection
from typing import Any

from pathways_jupyter.base.errors import ConfigError, PathwaysError

_SLICE_DOWN = ("DATA_LOSS", "DEADLINE_EXCEEDED", "NOT_FOUND", "INTERNAL")
"""The last three Pathways may answer while it notices that a worker is gone; pathwaysutils reads them as a loss too."""
_NAMED = re.compile(r"\bworkers? of slices? (\d+(?:(?:, | and |, and )\d+)*)\b")
_PROXY_GONE = ("UNAVAILABLE", "Connection to IFRT proxy server was terminated")
_SIDECAR_GONE = re.compile(r"\bUNAVAILABLE: the sidecar of host \d+\b")
"""The embedded cluster's proxy is there to answer this, perhaps a moment before it notices that the worker is gone."""


class ElasticRuntimeError(PathwaysError, RuntimeError):
    """Training cannot continue: too few slices, no usable snapshot, or no more attempts."""


class ProxyLostError(ElasticRuntimeError):
    """The proxy is gone, and all arrays on TPUs with it."""


class ArgumentError(ConfigError, ValueError):
    """An argument that elastic training cannot use; nothing was changed."""


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

    if not isinstance(error, jax.errors.JaxRuntimeError):
        return False
    return any(kind in str(error) for kind in _SLICE_DOWN) or _SIDECAR_GONE.search(str(error)) is not None


def slices_named(error: BaseException | str) -> frozenset[int]:
    """Return the slices, by JAX's index, whose data `error` says are lost; none where it does not say."""
    text = str(error)
    named = _NAMED.findall(text) if "DATA_LOSS" in text else ()
    return frozenset(int(number) for each in named for number in re.findall(r"\d+", each))


def is_proxy_gone(error: BaseException) -> bool:
    """Return whether `error` is JAX's, and means that the proxy is gone, and all arrays with it."""
    import jax

    if not isinstance(error, jax.errors.JaxRuntimeError):
        return False
    return any(kind in str(error) for kind in _PROXY_GONE) and _SIDECAR_GONE.search(str(error)) is None


def check_whole(name: str, value: Any, *, at_least: int) -> None:
    """Refuse `value` if it is no whole number, or less than `at_least`."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < at_least:
        raise ArgumentError(
            f"{name} must be a whole number of at least {at_least}, not {value!r}.",
            hint=f"For example: {name}={max(1, at_least)}.",
        )


def check_seconds(name: str, value: Any, *, positive: bool = False) -> None:
    """Refuse `value` if it is no time in seconds."""
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number >= 0 or (positive and not number):
        least = "more than 0" if positive else "at least 0"
        raise ArgumentError(
            f"{name} must be a number of seconds, {least}, not {value!r}.", hint=f"For example: {name}=60."
        )


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Refuse `value` if it is none of `choices`."""
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(repr(each) for each in choices)
        raise ArgumentError(f"{name} must be one of {allowed}, not {value!r}.", hint=f"Give {name} one of these.")


def check_callable(name: str, value: Any) -> None:
    """Refuse `value` if it cannot be called."""
    if not callable(value):
        raise ArgumentError(f"{name} must be a function, not {type(value).__name__}.", hint=f"Give {name} a function.")


def check_type(name: str, value: Any, expected: type, *, example: str) -> None:
    """Refuse `value` if it is no `expected`."""
    if not isinstance(value, expected):
        raise ArgumentError(
            f"{name} must be of type {expected.__name__}, not {type(value).__name__}.", hint=f"For example: {example}."
        )


def check_slices(name: str, count: int, total: int) -> None:
    """Refuse to wait for more slices than there can ever be; that some are down now is no reason."""
    if count > total:
        there = "is 1 slice" if total == 1 else f"are {total} slices"
        raise ArgumentError(
            f"{name} is {count}, but there {there} in all.",
            hint=f"Give {name} at most {total}, or connect to more slices.",
        )
