"""Variables as JSON values, with their arrays beside them, and back; nothing of it is code.

Aliases stay aliases, and a list or a dictionary may hold itself. What has a class of its own and is a pytree comes back
as a dictionary of its leaves by their paths.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathways_jupyter.base.errors import PathwaysError

_LARGEST_INTEGER_BITS = 10_000
"""Python reads no longer number from a text, so none is written."""
_LARGEST_VALUE, _LARGEST_KEY = 100_000_000, 10_000
"""Values in one, with those that are in several places counted in each: whatever goes through it does so much work.

Two kilobytes of tuples of tuples are more than that a thousand times over. A key is hashed as a whole, and meanwhile no
other thread of Python runs.
"""
_WITH_NUMBER = frozenset({"dict", "frozenset", "leaves", "list", "numpy", "set", "tuple"})
"""Kinds of values that can be in several places."""
_LONGEST_CLASS = 200
_MOST_OF_ONE_HASH = 100
"""Keys of one dictionary, or members of one set, each of which is compared with all others."""


class UnsavableError(PathwaysError):
    """A value that cannot be saved; the message names its place and the reason."""


class VariableWriter:
    """Describes variables one after the other.

    Args:
      describe: Returns the description of an array; raises a TypeError or ValueError if it cannot be saved.

    Attributes:
      arrays: The arrays so far, each once; descriptions name them by their index.
      described: Their descriptions.
    """

    def __init__(self, describe: Callable[[Any], Any]) -> None:
        self.arrays: list[Any] = []
        self.described: list[Any] = []
        self._describe = describe
        # By address: the number of an array or another value, and that itself, so that no other gets its address.
        self._known: dict[int, tuple[int, Any]] = {}
        self._open: set[int] = set()
        self._sizes = _Sizes()

    def forget(self) -> None:
        """Let go of all arrays and values."""
        self.arrays, self._known = [], {}

    def write(self, name: str, value: Any) -> Any:
        """Return the description of a variable.

        Raises:
          UnsavableError: It cannot be saved; nothing of it stays here.
        """
        known, count, sizes = dict(self._known), len(self.arrays), self._sizes.copy()
        try:
            node = self._node(name, value)
            self._sizes.add(node)
            return node
        except (UnsavableError, RecursionError, ValueError) as error:
            self._known, self._open, self._sizes = known, set(), sizes
            del self.arrays[count:], self.described[count:]
            if isinstance(error, UnsavableError):
                raise
            why = "is too deep" if isinstance(error, RecursionError) else error
            raise UnsavableError(f"{name} {why}.") from None

    def _node(self, path: str, value: Any) -> Any:
        import jax
        import numpy as np

        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > _LARGEST_INTEGER_BITS:
            raise UnsavableError(f"{path} is a number with too many digits.")
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is complex:
            return {"complex": [value.real, value.imag]}
        if type(value) is bytes:
            return {"bytes": base64.b64encode(value).decode("ascii")}
        if isinstance(value, jax.Array):
            return {"array": self._index(path, value)}
        if id(value) in self._known:
            return {"same": self._known[id(value)][0]}
        if id(value) in self._open:
            raise UnsavableError(f"{path} is a {type(value).__name__} that holds itself.")
        if isinstance(value, (np.ndarray, np.generic)):
            return self._remember(value, _from_numpy(path, value))
        if type(value) in (list, dict):
            # Before its children, which may hold it.
            node = self._remember(value, {})
            node[type(value).__name__] = self._children(path, value)
            return node
        if type(value) in (tuple, set, frozenset):
            self._open.add(id(value))
            node = {type(value).__name__: self._children(path, value)}
            self._open.discard(id(value))
            return self._remember(value, node)
        return self._leaves(path, value)

    def _remember(self, value: Any, node: dict[str, Any]) -> dict[str, Any]:
        node["id"] = len(self._known)
        self._known[id(value)] = (node["id"], value)
        return node

    def _children(self, path: str, value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [[self._node(f"a key of {path}", k), self._node(f"{path}[{k!r}]", v)] for k, v in value.items()]
        return [self._node(f"{path}[{number}]", each) for number, each in enumerate(value)]

    def _leaves(self, path: str, value: Any) -> dict[str, Any]:
        import jax

        try:
            leaves = jax.tree_util.tree_flatten_with_path(value)[0]
        except Exception as error:
            raise UnsavableError(f"{path} cannot be taken apart: {error}") from error
        if len(leaves) == 1 and leaves[0][1] is value:
            raise UnsavableError(
                f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which is no pytree."
            )
        self._open.add(id(value))
        leaves_by_path = [(jax.tree_util.keystr(inner), leaf) for inner, leaf in leaves]
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        node = {"leaves": [[inner, self._node(path + inner, leaf)] for inner, leaf in leaves_by_path], "of": kind}
        self._open.discard(id(value))
        return self._remember(value, node)

    def _index(self, path: str, array: Any) -> int:
        if id(array) not in self._known:
            try:
                self.described.append(self._describe(array))
            except (TypeError, ValueError) as error:
                raise UnsavableError(f"{path} {error}.") from None
            self._known[id(array)] = (len(self.arrays), array)
            self.arrays.append(array)
        return self._known[id(array)][0]


def _from_numpy(path: str, value: Any) -> dict[str, Any]:
    import numpy as np

    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.fields or not _is_named(array.dtype):
        raise UnsavableError(f"{path} is a NumPy array of {array.dtype}.")
    data = base64.b64encode(array.tobytes()).decode("ascii")
    is_scalar = isinstance(value, np.generic)
    return {"numpy": data, "dtype": array.dtype.name, "shape": list(array.shape), "scalar": is_scalar}


def _is_named(dtype: Any) -> bool:
    import numpy as np

    try:
        return bool(np.dtype(dtype.name) == dtype)
    except TypeError:
        return False


class _Sizes:
    """The sizes of values that are described one after the other, which may have parts in common."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def copy(self) -> _Sizes:
        """Return what this is now."""
        copied = _Sizes()
        copied._known = dict(self._known)
        return copied

    def add(self, node: Any) -> int:
        """Return how many values are in one.

        Raises:
          ValueError: Too many, in it or in a key of it; the message is the end of a sentence.
          LookupError, TypeError, RecursionError: It is no description.
        """
        if not isinstance(node, Mapping):
            return 1
        if "same" in node:
            return self._known[node["same"]]
        kind = _kind(node)
        if kind not in _WITH_NUMBER:
            return 1
        if node["id"] in self._known:
            raise ValueError("has two values of one number")
        # What holds itself is counted once in itself.
        self._known[node["id"]] = size = 1
        if kind in ("dict", "leaves"):
            size += sum(self._key(key) + self.add(value) for key, value in node[kind])
        elif kind != "numpy":
            size += sum(map(self._key if kind in ("set", "frozenset") else self.add, node[kind]))
        if size > _LARGEST_VALUE:
            raise ValueError("is too large, with what is in several places counted in each")
        self._known[node["id"]] = size
        return size

    def _key(self, node: Any) -> int:
        size = self.add(node)
        if size > _LARGEST_KEY:
            raise ValueError("has a key, or a member of a set, that is too large")
        return size


class VariableReader:
    """Makes variables of their descriptions, which may be hostile.

    Args:
      arrays: By their indices.

    Attributes:
      classes: The names of classes, by the id of each dictionary that has the leaves of an object.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = arrays
        self.classes: dict[int, str] = {}
        self._known: dict[int, Any] = {}
        self._sizes = _Sizes()

    def read(self, node: Any) -> Any:
        """Return what a description is of.

        Raises:
          LookupError, TypeError, ValueError, RecursionError: It is none, or more work than any value that was saved.
        """
        self._sizes.add(node)
        return self._read(node)

    def _read(self, node: Any) -> Any:
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if not isinstance(node, Mapping):
            raise TypeError("neither a value nor a description of one")
        if "same" in node:
            return self._known[node["same"]]
        kind = _kind(node)
        made: Any
        match kind:
            case "array":
                return self._arrays[_index(node[kind])]
            case "complex":
                return complex(*map(float, node[kind]))
            case "bytes":
                return base64.b64decode(node[kind], validate=True)
            case "numpy":
                made = _to_numpy(node)
            case "list":
                # Before what is in it, which may be itself.
                made = self._known[node["id"]] = []
                made.extend(map(self._read, node[kind]))
            case "dict" | "leaves":
                made = self._known[node["id"]] = {}
                hashes: Counter[int] = Counter()
                for key, value in node[kind]:
                    made[_hashed(self._read(key), hashes)] = self._read(value)
                if kind == "leaves":
                    self.classes[id(made)] = str(node["of"])[:_LONGEST_CLASS]
            case "tuple":
                made = tuple(map(self._read, node[kind]))
            case "set" | "frozenset":
                counted: Counter[int] = Counter()
                members = [_hashed(self._read(each), counted) for each in node[kind]]
                made = set(members) if kind == "set" else frozenset(members)
            case _:
                raise ValueError(f"no kind of value: {kind[:80]}")
        self._known[node["id"]] = made
        return made


def _kind(node: Mapping[str, Any]) -> str:
    """Return what a description is one of."""
    if "numpy" in node:
        return "numpy"
    (kind,) = node.keys() - {"id", "of"}
    return kind


def _hashed(key: Any, hashes: Counter[int]) -> Any:
    """Count the hash of a key, and return the key."""
    value = hash(key)
    hashes[value] += 1
    if hashes[value] > _MOST_OF_ONE_HASH:
        raise ValueError("has many keys of the same hash")
    return key


def _index(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise IndexError(f"no array has the number {number}")
    return number


def _to_numpy(node: Mapping[str, Any]) -> Any:
    import numpy as np

    # A list or a dictionary would be a type with fields, of any size.
    dtype = np.dtype(str(node["dtype"]))
    if dtype.hasobject or dtype.fields:
        raise ValueError("an array of objects")
    array = np.frombuffer(base64.b64decode(node["numpy"], validate=True), dtype).reshape(node["shape"]).copy()
    return array[()] if node["scalar"] else array
