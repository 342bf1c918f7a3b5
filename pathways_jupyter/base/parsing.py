"""Parse the numbers and times of command lines; an error names the option."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.setting_values import LARGEST_NUMBER

_UNITS: Mapping[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


def whole_number(option: str, value: str | int, *, most: int = LARGEST_NUMBER) -> int:
    """Parse a whole number from 0 to `most`, by default the largest that Kubernetes can store.

    Raises:
      ConfigError: `value` is not one.
    """
    text = str(value).strip()
    if not text.isdecimal():
        raise ConfigError(f"{option} must be a whole number, not {value}.", hint=f"For example: {option} 20.")
    # By its length first: Python refuses to convert thousands of digits.
    if len(text) > len(str(most)) or int(text) > most:
        raise ConfigError(f"{option} must be at most {most}, not {value}.", hint=f"For example: {option} 20.")
    return int(text)


def seconds(option: str, value: str | float, *, least: float = 0.0, most: float = LARGEST_NUMBER) -> float:
    """Parse a time: a number of seconds, or numbers with ``s``, ``m``, ``h``, ``d`` or ``w``, such as ``1h30m``.

    Returns:
      Seconds, from `least` to `most`.

    Raises:
      ConfigError: `value` is none.
    """
    text = str(value).strip()
    try:
        if _PART.sub("", text):
            number = float(text)
        else:
            number = sum((float(part) * _UNITS[unit] for part, unit in _PART.findall(text)), 0.0) if text else math.nan
    except ValueError:
        number = math.nan
    # NaN is in no interval.
    if not least <= number <= most:
        within = f" from {least:.10g} to {most:.10g} seconds" if number > most or most < LARGEST_NUMBER else ""
        raise ConfigError(
            f"{option} must be a time{within}, not {value}.", hint=f"For example: {option} 30s, or {option} 2m."
        )
    return number


def ranges(text: str) -> set[int]:
    """Parse a set of numbers as one writes it: ``0,2-4``."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
