"""Numbers, times and names as people read them, and as they write them on a command line."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pathways_jupyter.base.errors import ConfigError

LARGEST_NUMBER = 2**31 - 1
"""The largest that Kubernetes takes in most of its fields; 68 years in seconds."""
_UNITS: Mapping[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_ERROR = re.compile(
    r"error|exception|fail|denied|refused|cannot|can't|could not|not found|no such|no module|fatal|abort", re.IGNORECASE
)
_LOG_PREFIX = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ \S+\] ")
"""Prefix of log messages of Kubernetes' programs."""
_LATELY_SECONDS = 3600.0
"""A laptop may be on another network after longer than this."""
_LONGEST_REASON = 300
"""In characters; what is longer ends after a whole word."""
_LONGEST_RANGE = 100_000
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


def count(number: int, singular: str, plural: str = "") -> str:
    """Return `number` with its noun: ``1 slice``, ``2 slices``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def capitalized(words: str) -> str:
    """Return `words` with a capital at its beginning, as a sentence has it; other letters stay."""
    return words[:1].upper() + words[1:]


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first of `names`, and how many more there are: ``a, b and 38 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def each_of(names: Sequence[str], what: str) -> str:
    """Return that `what`, the end of a sentence, is so of each: ``a is lost``, or ``a, b: each is lost``."""
    return f"{names[0]} {what}" if len(names) == 1 else f"{some(names)}: each {what}"


def size(number: float) -> str:
    """Return `number` of bytes in the unit that suits it: ``1 byte``, ``812 bytes``, ``3.1 kB``, ``47.7 MB``."""
    if number < 1000:
        return count(round(number), "byte")
    for unit in ("kB", "MB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} GB"


def about(seconds: float | None) -> str:
    """Return an estimated time in words, at the end of a sentence: ``, about 12 s``; empty if it is unknown."""
    if seconds is None:
        return ""
    return f", about {seconds / 60:.0f} min" if seconds > 90 else f", about {max(1, round(seconds))} s"


def array_type(array: Any) -> str:
    """Return the dtype and shape of `array`, as JAX writes them: ``float32[8,4]``."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def stamp(seconds: float, *, micro: bool = False) -> str:
    """Return seconds since the epoch as Kubernetes writes a Time, or with `micro` a MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).strftime(f"%Y-%m-%dT%H:%M:%S{'.%f' if micro else ''}Z")


def clock(at: float) -> str:
    """Return the local time of day of `at`, which is in seconds since the epoch."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def to_cluster(seconds: float) -> str:
    """Say how long a round trip takes: ``104 ms to the cluster``; empty where that is not known."""
    return f"{max(1, round(seconds * 1000))} ms to the cluster" if seconds else ""


def last_upload(rate: float, measured: float) -> str:
    """Say how fast a long transfer went: ``last upload 18 Mbit/s at 14:02:31``; empty if there was none lately.

    Args:
      rate: Bytes a second.
      measured: When, in seconds since the epoch.
    """
    if not rate or time.time() - measured > _LATELY_SECONDS:
        return ""
    return f"last upload {8e-6 * rate:.3g} Mbit/s at {clock(measured)}"


def without_infinity(value: Any) -> Any:
    """Return JSON values with each number that JSON does not have as its text, which settings take too: ``inf``.

    Python writes such numbers as ``Infinity`` and ``NaN``, which no browser reads, nor most other programs.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: without_infinity(item) for name, item in value.items()}
    return [without_infinity(item) for item in value] if isinstance(value, (list, tuple)) else value


def ranges(numbers: Iterable[int], separator: str = ",") -> str:
    """Return `numbers` as one writes them, ``0,2-4``; three or more in a row become a range."""
    runs: list[list[int]] = []
    for index in sorted(numbers):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return separator.join(separator.join(map(str, run)) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs)


def reason(output: bytes | str, default: str = "") -> str:
    """Return the line of a failed program's output that says why: the last one about an error, else the last in words.

    Args:
      default: For output without any words.
    """
    said = output.decode(errors="replace") if isinstance(output, bytes) else output
    lines = [" ".join(_LOG_PREFIX.sub("", line.strip()).split()) for line in said.splitlines()]
    # Not a closing bracket, such as that around the output of a program that it has called.
    lines = [line for line in lines if any(map(str.isalnum, line))]
    said_last = ([line for line in lines if _ERROR.search(line)] or lines or [default])[-1].rstrip(".")
    cut = said_last[:_LONGEST_REASON]
    return said_last if said_last == cut else f"{cut.rpartition(' ')[0] or cut} ..."


def parse_whole_number(option: str, value: str | int, *, most: int = LARGEST_NUMBER) -> int:
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


def parse_seconds(option: str, value: str | float, *, least: float = 0.0, most: float = LARGEST_NUMBER) -> float:
    """Parse a time: a number of seconds, or numbers with ``s``, ``m``, ``h``, ``d`` or ``w``, such as ``1h30m``.

    Returns:
      Seconds, from `least` to `most`.

    Raises:
      ConfigError: `value` is none.
    """
    number = seconds_in(str(value))
    # NaN is in no interval.
    if not least <= number <= most:
        within = "" if math.isnan(number) else f" from {least:.10g} to {most:.10g} seconds"
        raise ConfigError(
            f"{option} must be a time{within}, not {value}.", hint=f"For example: {option} 30s, or {option} 2m."
        )
    return number


def seconds_in(text: str) -> float:
    """Return the seconds of a time, as :func:`parse_seconds` takes it; NaN if it is none."""
    text = text.strip()
    try:
        if _PART.sub("", text):
            return float(text)
    except ValueError:
        return math.nan
    return sum((float(part) * _UNITS[unit] for part, unit in _PART.findall(text)), 0.0) if text else math.nan


def parse_path(text: str) -> Path:
    """Return a path that a user has written; ``~NAME`` of a user who does not exist stays, and is not found."""
    # Path.expanduser() would raise for such a user.
    return Path(os.path.expanduser(text))


def absolute_path(text: str) -> Path:
    """Return a path that a user has written as an absolute one.

    Raises:
      ConfigError: It is relative to a current directory that is gone.
    """
    path = parse_path(text)
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise ConfigError(
            f"The current directory is gone, so {text} leads nowhere.", hint="Change to a directory that exists."
        ) from error


def parse_ranges(text: str) -> set[int]:
    """Parse ranges, as :func:`ranges` formats them.

    Raises:
      ValueError: It is none, or one has more numbers than an Indexed Job may have pods.
    """
    result: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if not 0 < len(numbers) <= _LONGEST_RANGE:
            raise ValueError(f"{part!r} is no range")
        result.update(numbers)
    return result
