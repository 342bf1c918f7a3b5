"""Variables that hold arrays, such as a dict of parameters: their arrays travel as arrays, the rest beside them.

To the hosts it is pickled, as they run this notebook's code anyway; what they send is read by :mod:`.value_reader`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathways_jupyter.colocated.channel import Answer
from pathways_jupyter.colocated.errors import ColocatedError, name_hosts
from pathways_jupyter.colocated.value_reader import Reader

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class Inputs:
    """Variables, sorted by how they travel.

    Attributes:
      arrays: Arrays by name; those inside of a variable are named like ``params['w']``.
      values: What is pickled, by name.
      trees: What holds arrays, by name: its structure, its leaves without the arrays, and the arrays' names by place.
    """

    arrays: Mapping[str, jax.Array]
    values: Mapping[str, Any]
    trees: Mapping[str, tuple[Any, list[Any], dict[int, str]]]

    @property
    def pickled(self) -> Mapping[str, Any]:
        """Values that have to be pickled, by name."""
        return {**self.values, **{name: (tree, leaves) for name, (tree, leaves, _) in self.trees.items()}}


def split(inputs: Mapping[str, Any]) -> Inputs:
    """Sort variables by how they travel."""
    import jax

    arrays: dict[str, jax.Array] = {}
    values: dict[str, Any] = {}
    trees: dict[str, tuple[Any, list[Any], dict[int, str]]] = {}
    for name, value in inputs.items():
        if isinstance(value, jax.Array):
            arrays[name] = value
            continue
        flat, tree = jax.tree_util.tree_flatten_with_path(value)
        keys = {
            index: f"{name}{jax.tree_util.keystr(path)}"
            for index, (path, leaf) in enumerate(flat)
            if isinstance(leaf, jax.Array)
        }
        if not keys:
            values[name] = value
            continue
        arrays |= {key: flat[index][1] for index, key in keys.items()}
        leaves = [None if index in keys else leaf for index, (_, leaf) in enumerate(flat)]
        trees[name] = (tree, leaves, keys)
    return Inputs(arrays, values, trees)


class PerHost(dict[int, Any]):
    """A value that is not the same on all hosts: every host's own, by the host's index."""

    def __repr__(self) -> str:
        return "\n".join(f"[host {index}] {value!r}" for index, value in self.items())


def join(arrays: Mapping[str, jax.Array], answers: Sequence[Answer], *, unpickle: bool) -> dict[str, Any]:
    """Return outputs by name, from the arrays that came back and what hosts say of those that are more than an array.

    Returns:
      A value where all hosts have the same, :class:`PerHost` where they do not.

    Raises:
      ColocatedError: A variable that holds arrays has another structure on other hosts, or holds what is not read.
    """
    import jax

    variables: dict[str, Any] = dict(arrays)
    for name in answers[0].head["written"]:
        used: set[str] = set()
        values: dict[int, Any] = {}
        for answer in answers:
            parts = answer.parts[answer.head["parts"] :]
            reader = Reader(f"Output {name}", parts, arrays, unpickle=unpickle)
            values[answer.host.index] = reader.read(answer.head["written"].get(name))
            used |= reader.used
        (first, value), *others = values.items()
        structure = jax.tree_util.tree_structure
        if used and (rebuilt := [index for index, other in others if structure(other) != structure(value)]):
            raise ColocatedError(
                f"Output {name} is not built in the same way on host {first} and {name_hosts(rebuilt)}.",
                hint="Give it one structure on every host; names stay on the hosts meanwhile.",
            )
        variables = {key: array for key, array in variables.items() if key not in used}
        variables |= once_or_per_host({name: values})
    return variables


def once_or_per_host(values: Mapping[str, Mapping[int, Any]]) -> dict[str, Any]:
    """Return values by name, from each host's by its index: one where all have the same, else :class:`PerHost`."""
    merged = {}
    for name, each in values.items():
        first, *others = each.values()
        merged[name] = first if all(equal(first, other) for other in others) else PerHost(each)
    return merged


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same, as far as that can be known."""
    import jax

    try:
        leaves, tree = jax.tree_util.tree_flatten(one)
        others, other_tree = jax.tree_util.tree_flatten(other)
    except ValueError:
        # A dict with keys of several types, which JAX cannot sort.
        return _equal_leaves(one, other)
    return tree == other_tree and all(map(_equal_leaves, leaves, others))


def _equal_leaves(left: Any, right: Any) -> bool:
    import numpy as np
    from jax.experimental.colocated_python import serialization

    if left is right:
        return True
    # A table compares cell by cell, and has no one truth.
    with contextlib.suppress(Exception):
        arrays = isinstance(left, np.ndarray) or isinstance(right, np.ndarray)
        if np.array_equal(left, right) if arrays else left == right:
            return True
    # What does not equal itself, as NaN and NaT do not, and what cannot be compared, may still be the same.
    with contextlib.suppress(Exception):
        return type(left) is type(right) and bool(serialization._serialize(left) == serialization._serialize(right))
    return False
