"""Checks of what users give to elastic training, before anything has been changed; all raise :class:`ArgumentError`.

A wrong argument must not show up hours later, at the first loss: a typing error in a rule would change what is trained,
and a run that needs more slices than there are would wait for them without end.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from typing import Any

from pathways_jupyter.base.errors import ConfigError


class ArgumentError(ConfigError, ValueError):
    """An argument that elastic training cannot use; nothing was changed."""


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
