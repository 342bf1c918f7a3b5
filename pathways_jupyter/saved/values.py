"""Variables as JSON values, with their arrays beside them, and back; nothing of it is code.

Aliases stay aliases, and a list or a dictionary may hold itself. What has a class of its own and is a pytree comes back
as a dictionary of its leaves by their paths.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathways_jupyter.base.errors import PathwaysError

_LARGEST_INTEGER_BITS = 10_000
"""Python reads no longer number from a text, so none is written."""


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

    def write(self, name: str, value: Any) -> Any:
        """Return the description of a variable.

        Raises:
          UnsavableError: It cannot be saved; nothing of it stays here.
        """
        known, count = dict(self._known), len(self.arrays)
        try:
            return self._node(name, value)
        except (UnsavableError, RecursionError) as error:
            self._known, self._open = known, set()
            del self.arrays[count:], self.described[count:]
            if isinstance(error, UnsavableError):
                raise
            raise UnsavableError(f"{name} is too deep.") from None

    def _node(self, place: str, value: Any) -> Any:
        import jax
        import numpy as np

        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > _LARGEST_INTEGER_BITS:
            raise UnsavableError(f"{place} is a number with too many digits.")
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is complex:
            return {"complex": [value.real, value.imag]}
        if type(value) is bytes:
            return {"bytes": base64.b64encode(value).decode("ascii")}
        if isinstance(value, jax.Array):
            return {"array": self._index(place, value)}
        if id(value) in self._known:
            return {"same": self._known[id(value)][0]}
        if id(value) in self._open:
            raise UnsavableError(f"{place} is a {type(value).__name__} that holds itself.")
        if isinstance(value, (np.ndarray, np.generic)):
            return self._remember(value, _from_numpy(place, value))
        if type(value) in (list, dict):
            # Before its children, which may hold it.
            node = self._remember(value, {})
            node[type(value).__name__] = self._children(place, value)
            return node
        if type(value) in (tuple, set, frozenset):
            self._open.add(id(value))
            node = {type(value).__name__: self._children(place, value)}
            self._open.discard(id(value))
            return self._remember(value, node)
        return self._leaves(place, value)

    def _remember(self, value: Any, node: dict[str, Any]) -> dict[str, Any]:
        node["id"] = len(self._known)
        self._known[id(value)] = (node["id"], value)
        return node

    def _children(self, place: str, value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [[self._node(f"a key of {place}", k), self._node(f"{place}[{k!r}]", v)] for k, v in value.items()]
        return [self._node(f"{place}[{number}]", each) for number, each in enumerate(value)]

    def _leaves(self, place: str, value: Any) -> dict[str, Any]:
        import jax

        try:
            leaves = jax.tree_util.tree_flatten_with_path(value)[0]
        except Exception as error:
            raise UnsavableError(f"{place} cannot be taken apart: {error}") from error
        if len(leaves) == 1 and leaves[0][1] is value:
            raise UnsavableError(
                f"{place} is a {type(value).__module__}.{type(value).__qualname__}, which is no pytree."
            )
        self._open.add(id(value))
        found = [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
        node = {"dict": [[path, self._node(f"{place}{path}", leaf)] for path, leaf in found]}
        self._open.discard(id(value))
        return self._remember(value, node)

    def _index(self, place: str, array: Any) -> int:
        if id(array) not in self._known:
            try:
                self.described.append(self._describe(array))
            except (TypeError, ValueError) as error:
                raise UnsavableError(f"{place} {error}.") from None
            self._known[id(array)] = (len(self.arrays), array)
            self.arrays.append(array)
        return self._known[id(array)][0]


def _from_numpy(place: str, value: Any) -> dict[str, Any]:
    import numpy as np

    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.fields or not _is_named(array.dtype):
        raise UnsavableError(f"{place} is a NumPy array of {array.dtype}.")
    data = base64.b64encode(array.tobytes()).decode("ascii")
    is_scalar = isinstance(value, np.generic)
    return {"numpy": data, "dtype": array.dtype.name, "shape": list(array.shape), "scalar": is_scalar}


def _is_named(dtype: Any) -> bool:
    import numpy as np

    try:
        return bool(np.dtype(dtype.name) == dtype)
    except TypeError:
        return False


class VariableReader:
    """Makes variables of their descriptions, which may be hostile.

    Args:
      arrays: By their indices.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = arrays
        self._known: dict[int, Any] = {}

    def read(self, node: Any) -> Any:
        """Return what a description is of.

        Raises:
          LookupError, TypeError, ValueError, RecursionError: It is none.
        """
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if not isinstance(node, Mapping):
            raise TypeError("neither a value nor a description of one")
        if "same" in node:
            return self._known[node["same"]]
        if "array" in node:
            return self._arrays[_index(node["array"])]
        if "complex" in node:
            return complex(*map(float, node["complex"]))
        if "bytes" in node:
            return base64.b64decode(node["bytes"], validate=True)
        if "numpy" in node:
            return self._known.setdefault(node["id"], _to_numpy(node))
        if "list" in node:
            made: list[Any] = []
            self._known[node["id"]] = made
            made.extend(map(self.read, node["list"]))
            return made
        if "dict" in node:
            filled: dict[Any, Any] = {}
            self._known[node["id"]] = filled
            for key, value in node["dict"]:
                filled[self.read(key)] = self.read(value)
            return filled
        kinds: Mapping[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
        (kind,) = node.keys() - {"id"}
        value = kinds[kind](list(map(self.read, node[kind])))
        return self._known.setdefault(node["id"], value)


def _index(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise IndexError(f"no array has the number {number}")
    return number


def _to_numpy(node: Mapping[str, Any]) -> Any:
    import numpy as np

    dtype = np.dtype(node["dtype"])
    if dtype.hasobject:
        raise ValueError("an array of objects")
    array = np.frombuffer(base64.b64decode(node["numpy"], validate=True), dtype).reshape(node["shape"]).copy()
    return array[()] if node["scalar"] else array
