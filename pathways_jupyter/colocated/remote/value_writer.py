"""Write values as JSON and binary parts that the notebook reads without running anything (colocated/value_reader.py).

A pickle is a program: with it, anyone who controls a host could run code in the notebook. What is written here can only
be a value. None, booleans, numbers and text stand for themselves; anything else is a list of its kind and what it is
made of. What has no kind is ``other``, which the notebook refuses; if its user trusts the hosts, it is pickled instead.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import io
import math
import platform
from collections.abc import Callable, Collection
from typing import Any

import jax
import numpy as np
from jax.experimental.colocated_python import serialization

from . import codec

_SEQUENCES, _MAPPINGS, _TEXTS, _FACTORIES = (
    {kind: name for name, kind in kinds.items()}
    for kinds in (codec.SEQUENCES, codec.MAPPINGS, codec.TEXTS, codec.FACTORIES)
)
_WORD_BYTES = 8
_JSON_BITS = 1000
"""A larger integer is written in hexadecimal, which Python reads at any length."""


class TooLargeError(Exception):
    """A value is larger than the limit."""


class Writer:
    """Write values; they refer to :attr:`parts` by place.

    Args:
      is_array: Whether something travels as an array; default: nothing does.
      own: Modules whose classes the notebook has defined.
      unpickle: Pickle what has no kind.
      limit: Most bytes of all values; a larger one is not copied.

    Attributes:
      parts: The binary parts.
      arrays: What travels as an array, by its place, such as ``z['w']``.
    """

    def __init__(
        self,
        is_array: Callable[[Any], bool] = lambda value: False,
        *,
        own: Collection[str] = (),
        unpickle: bool = False,
        limit: float = math.inf,
    ) -> None:
        self.parts: list[bytes] = []
        self.arrays: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._is_array = is_array
        self._own = frozenset(own)
        self._unpickle = unpickle
        self._room = limit

    def write(self, value: Any, path: str) -> Any:
        """Return `value`, which stands at `path`, as a JSON value.

        Raises:
          TypeError: It cannot be sent at all; the message names it by its place.
          TooLargeError: It is larger than the limit.
        """
        try:
            return self._write(value, path)
        except RecursionError:
            raise TypeError(f"{path} is nested too deeply to be sent back, or holds itself.") from None

    def _write(self, value: Any, path: str) -> Any:
        kind = type(value)
        self._spend(_WORD_BYTES)
        if value is None or kind in (bool, float):
            return value
        if kind is int:
            self._spend(value.bit_length() // 4)
            return value if value.bit_length() < _JSON_BITS else ["int", f"{value:x}"]
        if kind is str:
            self._spend(len(value))
            return value
        if kind is complex:
            return ["complex", value.real, value.imag]
        if kind in (bytes, bytearray):
            return [kind.__name__, self._part(value)]
        if kind in _SEQUENCES:
            return [_SEQUENCES[kind], [self._write(each, f"{path}[{at}]") for at, each in enumerate(value)]]
        if kind in _MAPPINGS:
            return [_MAPPINGS[kind], self._pairs(value, path)]
        if kind is collections.defaultdict and value.default_factory in _FACTORIES:
            return ["defaultdict", self._pairs(value, path), _FACTORIES[value.default_factory]]
        if kind in _TEXTS:
            text = value.isoformat() if hasattr(value, "isoformat") else str(value)
            # No text has it: whether a time is the second of two, when a clock is set back.
            return [_TEXTS[kind], text, 1] if getattr(value, "fold", 0) else [_TEXTS[kind], text]
        if kind is datetime.timedelta:
            return ["timedelta", value.days, value.seconds, value.microseconds]
        if isinstance(value, (jax.Array, np.ndarray)) and self._is_array(value):
            # One that is there several times is sent once.
            name = self._names.setdefault(id(value), path)
            self.arrays[name] = value
            return ["array", name]
        if isinstance(value, io.IOBase):
            # A pickler would read all of it.
            raise TypeError(f"{path} is an open file, which stays where it is.")
        written = self._numpy(value, path) or self._fields(value, path)
        return written or self._other(value, path)

    def _pairs(self, value: dict[Any, Any], path: str) -> list[Any]:
        return [
            [self._write(key, f"a key of {path}"), self._write(each, f"{path}[{key!r}]")] for key, each in value.items()
        ]

    def _numpy(self, value: Any, path: str) -> list[Any] | None:
        """Write NumPy's and JAX's values; None for anything else, and for those that only they themselves can read."""
        if isinstance(value, np.dtype):
            written = _described(value)
            return None if written is None else ["dtype", written]
        if isinstance(value, jax.Array):
            if not value.is_fully_addressable or jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
                return None
            self._spend(value.nbytes)
            value = np.asarray(value)
        if type(value) is not np.ndarray and not isinstance(value, np.generic):
            return None
        array = np.asarray(value)
        if array.dtype == object or isinstance(array.dtype, np.dtypes.StringDType):
            items = [self._write(each, f"{path}[{at}]") for at, each in enumerate(array.ravel().tolist())]
            return ["objects", "object" if array.dtype == object else "string", list(array.shape), items]
        described = _described(array.dtype)
        if described is None:
            return None
        self._spend(array.nbytes)
        data = self._part(array.tobytes())
        return (
            ["number", described, data]
            if isinstance(value, np.generic)
            else ["numpy", described, list(array.shape), data]
        )

    def _fields(self, value: Any, path: str) -> list[Any] | None:
        """Write a dataclass or named tuple that the notebook has defined, field by field."""
        kind = type(value)
        module = getattr(kind, "__module__", None)
        if module not in self._own:
            return None
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            pairs, name = list(zip(kind._fields, value)), "namedtuple"  # noqa: B905 - Python 3.10
        elif dataclasses.is_dataclass(kind):
            fields = [each.name for each in dataclasses.fields(kind)]
            if not set(getattr(value, "__dict__", ())) <= set(fields):
                return None
            pairs, name = [(each, getattr(value, each)) for each in fields if hasattr(value, each)], "dataclass"
        else:
            return None
        written = [[each, self._write(part, f"{path}.{each}")] for each, part in pairs]
        return [name, module, kind.__qualname__, written]

    def _other(self, value: Any, path: str) -> list[Any]:
        """Write what has no kind: pickled, but for the arrays in it, if the notebook's user trusts this host."""
        if not self._unpickle:
            return ["other", path, type(value).__name__]
        flat, tree = jax.tree_util.tree_flatten_with_path(value)
        names = [f"{path}{jax.tree_util.keystr(leaf_path)}" for leaf_path, _ in flat]
        arrays = {at: leaf for at, (_, leaf) in enumerate(flat) if self._is_array(leaf)}
        leaves = [None if at in arrays else leaf for at, (_, leaf) in enumerate(flat)]
        parts = dict(zip(names, leaves))  # noqa: B905 - Python 3.10
        for name, part in parts.items():
            if isinstance(part, io.IOBase):
                raise TypeError(f"{name} is an open file, which stays where it is.")
        try:
            data = serialization._serialize((tree, leaves))
        except Exception as error:
            for name, part in parts.items():
                try:
                    serialization._serialize(part)
                except Exception as reason:
                    kind = type(part).__name__
                    raise TypeError(f"{name} is a {kind}, which cannot be sent back: {reason}") from None
            raise TypeError(f"{path} cannot be sent back: {error}") from None
        return [
            "pickle",
            self._part(data),
            platform.python_version(),
            [[at, self._write(each, names[at])] for at, each in arrays.items()],
        ]

    def _part(self, data: bytes | bytearray) -> int:
        self._spend(len(data))
        self.parts.append(bytes(data))
        return len(self.parts) - 1

    def _spend(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise TooLargeError


def _described(dtype: np.dtype) -> str | None:
    """Return the code of a dtype, or its name if it is one of JAX's; None if neither is it, as for one with fields."""
    return next((each for each in (dtype.str, dtype.name) if _is(each, dtype)), None)


def _is(described: str, dtype: np.dtype) -> bool:
    try:
        return bool(np.dtype(described) == dtype)
    except TypeError:
        return False
