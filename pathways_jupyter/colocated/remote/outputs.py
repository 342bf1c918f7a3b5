"""The variables that a cell gives back: their arrays travel as arrays, everything else in them pickled.

A number that is a variable by itself counts as an array, so that every host's makes one array in the notebook; a number
inside of something else is part of that.
"""

from __future__ import annotations

import io
from typing import Any

import jax
import numpy as np
from jax.experimental.colocated_python import serialization

_NUMBERS = (bool, int, float, complex, np.generic)


def split(wanted: list[str], names: dict[str, Any], pickles: dict[str, bytes]) -> dict[str, Any]:
    """The arrays of what is wanted, by name; those inside of a variable are named like ``params['w']``.

    Args:
      wanted: Names of variables.
      names: All of the cell's.
      pickles: Where to put, by the variable's name, how each is built that is not just an array: its structure, its
        leaves without the arrays, and the arrays' names by place.

    Raises:
      NameError: The cell did not define a name.
      TypeError: Something cannot be pickled; the message names it.
    """
    absent = [name for name in wanted if name not in names]
    if absent:
        raise NameError(f"--out names {', '.join(absent)}, which this cell did not define.")
    found: dict[str, Any] = {}
    for name in wanted:
        value = names[name]
        if _is_array(value) or (isinstance(value, _NUMBERS) and _has_dtype(np.asarray(value))):
            found[name] = value
            continue
        flat, tree = jax.tree_util.tree_flatten_with_path(value)
        keys = [f"{name}{jax.tree_util.keystr(path)}" for path, _ in flat]
        places = {place: keys[place] for place, (_, leaf) in enumerate(flat) if _is_array(leaf)}
        found.update({key: flat[place][1] for place, key in places.items()})
        leaves = [None if place in places else leaf for place, (_, leaf) in enumerate(flat)]
        pickles[name] = _pickled((tree, leaves, places), dict(zip(keys, leaves)), name)  # noqa: B905 - Python 3.10
    return found


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array) or (isinstance(value, np.ndarray) and _has_dtype(value))


def _has_dtype(array: Any) -> bool:
    """Whether JAX has arrays of this kind; text becomes one that it has."""
    if isinstance(array.dtype, np.dtypes.StringDType) or array.dtype.kind == "U":
        return bool(array.ndim)
    try:
        with jax.enable_x64(True):
            jax.eval_shape(lambda: jax.numpy.zeros((), array.dtype))
    except TypeError:
        return False
    return True


def _pickled(value: Any, parts: dict[str, Any], name: str) -> bytes:
    for key, part in parts.items():
        if isinstance(part, io.IOBase):
            # The pickler would read all of it.
            raise TypeError(f"{key} is an open file, which stays where it is.")
    try:
        return bytes(serialization._serialize(value))
    except Exception as error:
        for key, part in parts.items():
            try:
                serialization._serialize(part)
            except Exception as reason:
                raise TypeError(f"{key} is a {type(part).__name__}, which cannot be sent back: {reason}") from None
        raise TypeError(f"{name} cannot be sent back: {error}") from None
