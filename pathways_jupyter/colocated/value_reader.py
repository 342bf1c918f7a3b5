"""Read what hosts send back; by default nothing of it can run code here.

Hosts are other machines: the authors of their images, those who may exec into them, and on a shared service the user
before decide what they send. So values arrive as data, written by ``remote/value_writer.py``, and are built here by
code of this module only: no name that a host sends is imported or called. Objects are built of dataclasses and named
tuples that this notebook has defined, without their constructors. Only with ``unpickle`` are pickles read.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType, MemberDescriptorType
from typing import Any

from pathways_jupyter.base.sentences import advice
from pathways_jupyter.colocated import host_versions, preflight
from pathways_jupyter.colocated.errors import ColocatedError
from pathways_jupyter.colocated.remote import codec


def own_modules() -> list[str]:
    """Return the modules whose classes this process sends with their objects: its own program, and registered ones."""
    import cloudpickle

    return ["__main__", *sorted(cloudpickle.list_registry_pickle_by_value())]


class Reader:
    """Reads values of one host.

    Args:
      what: What they are, for errors, such as ``Output z``.
      parts: The binary parts that the host sent with them.
      arrays: The arrays by the names that the host gave them.
      unpickle: Whether the user trusts the hosts to send pickles.

    Attributes:
      used: The names of the arrays that the values read so far hold.
    """

    def __init__(
        self,
        what: str,
        parts: Sequence[bytes],
        arrays: Mapping[str, Any] = MappingProxyType({}),
        *,
        unpickle: bool = False,
    ) -> None:
        self._what = what
        self._parts = dict(enumerate(parts))
        self._arrays = arrays
        self.used: set[str] = set()
        self._unpickle = unpickle

    def read(self, written: Any) -> Any:
        """Return the value.

        Raises:
          ColocatedError: It holds something that is not read from hosts, or that cannot be read here.
        """
        try:
            return self._read(written)
        except ColocatedError:
            raise
        except Exception as error:
            raise ColocatedError(
                f"{self._what} cannot be read here: {type(error).__name__}: {error}",
                hint="Install here what it is made of, or turn it into arrays, numbers and text on the hosts.",
            ) from error

    def _read(self, written: Any) -> Any:
        if written is None or isinstance(written, (bool, int, float, str)):
            return written
        if not isinstance(written, list):
            raise ValueError("not a value")
        kind, *rest = written
        if kind in codec.SEQUENCES:
            return codec.SEQUENCES[kind](self._read(each) for each in rest[0])
        if kind in codec.MAPPINGS:
            return codec.MAPPINGS[kind](self._pairs(rest[0]))
        if kind in codec.TEXTS:
            made = codec.TEXTS[kind]
            read = getattr(made, "fromisoformat", made)(_text(rest[0]))
            return read.replace(fold=1) if rest[1:] == [1] else read
        if kind == "int":
            return int(_text(rest[0]), 16)
        if kind == "defaultdict":
            return collections.defaultdict(codec.FACTORIES[rest[1]], self._pairs(rest[0]))
        if kind == "complex":
            return complex(float(rest[0]), float(rest[1]))
        if kind == "timedelta":
            return datetime.timedelta(*map(int, rest))
        if kind in ("bytes", "bytearray"):
            return self._part(rest[0]) if kind == "bytes" else bytearray(self._part(rest[0]))
        if kind == "array":
            self.used.add(rest[0])
            return self._arrays[rest[0]]
        if kind in ("dtype", "number", "numpy", "objects"):
            return self._numpy(kind, rest)
        if kind in ("namedtuple", "dataclass"):
            return self._object(kind, rest)
        if kind == "pickle" and self._unpickle:
            return self._unpickled(rest)
        if kind not in ("pickle", "other"):
            raise ValueError("not a value")
        refused = f"{rest[0]} is an object of class {rest[1]}" if kind == "other" else "It is a pickle"
        raise ColocatedError(
            f"{self._what} is not read: {refused}, which could run code here.",
            hint=advice(
                "Turn it into arrays, numbers and text on the hosts, or trust them to run code here: {unpickle}."
            ),
        )

    def _part(self, index: Any) -> bytes:
        if not isinstance(index, int) or index not in self._parts:
            raise ValueError("a part is missing")
        # Each is sent for one value: a short message must not name a large part many times, and fill the memory.
        return self._parts.pop(index)

    def _pairs(self, pairs: Any) -> dict[Any, Any]:
        return {self._read(key): self._read(value) for key, value in pairs}

    def _numpy(self, kind: str, rest: Sequence[Any]) -> Any:
        import numpy as np

        if kind == "objects":
            name, shape, items = rest
            array = np.empty(len(items), np.dtypes.StringDType() if name == "string" else object)
            for index, each in enumerate(items):
                array[index] = self._read(each)
            return array.reshape([int(size) for size in shape])
        dtype = np.dtype(_text(rest[0]))
        if kind == "dtype":
            return dtype
        if dtype.hasobject or not dtype.itemsize:
            # Bytes of objects would be taken for addresses in this process; any number of items fits into no bytes.
            raise ValueError(f"an array of {dtype} as bytes")
        data = self._part(rest[-1])
        shape = [int(size) for size in rest[1]] if kind == "numpy" else []
        if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(data):
            raise ValueError("an array of another size")
        array = np.ndarray(shape, dtype, buffer=data).copy()
        return array if kind == "numpy" else array[()]

    def _object(self, kind: str, rest: Sequence[Any]) -> Any:
        """Build a dataclass or named tuple of this notebook's program without running anything of its class."""
        module, name, pairs = rest
        # Nothing is imported for it, and attributes are not read with getattr, which may run code of the program.
        made: Any = sys.modules[module] if module in own_modules() else None
        for each in _text(name).split("."):
            made = vars(made).get(each) if made is not None else None
        if not isinstance(made, type) or made.__module__ != module or made.__qualname__ != name:
            raise ValueError(f"this notebook has no class {name}")
        fields = dict(pairs)
        if kind == "namedtuple" and issubclass(made, tuple):
            if tuple(fields) != getattr(made, "_fields", None):
                raise ValueError(f"{name} has other fields here")
            return tuple.__new__(made, [self._read(each) for each in fields.values()])
        if kind != "dataclass" or not dataclasses.is_dataclass(made):
            raise ValueError(f"{name} is no {kind} here")
        if not set(fields) <= {each.name for each in dataclasses.fields(made)}:
            raise ValueError(f"{name} has other fields here")
        instance = object.__new__(made)
        for each, part in fields.items():
            attribute = inspect.getattr_static(made, each, None)
            if hasattr(type(attribute), "__set__") and not isinstance(attribute, MemberDescriptorType):
                # A property, for example, whose setter would run; a slot is none.
                raise ValueError(f"{name} computes its field {each}")
            object.__setattr__(instance, each, self._read(part))
        return instance

    def _unpickled(self, rest: Sequence[Any]) -> Any:
        import jax
        from jax.experimental.colocated_python import serialization

        data, python, arrays = self._part(rest[0]), _text(rest[1]), rest[2]
        # Another version's functions can end the process.
        different = host_versions.differences(host_versions.here(), {0: {"python": python}})
        if different and host_versions.unreadable(different, preflight.modules_needed(data)):
            raise ColocatedError(
                f"{self._what} holds functions or classes of Python {python}, which cannot be read here.",
                hint="Turn it into arrays, numbers and text on the hosts.",
            )
        tree, leaves = serialization._deserialize(data)
        for index, array in arrays:
            leaves[index] = self._read(array)
        return jax.tree_util.tree_unflatten(tree, leaves)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not text")
    return value
