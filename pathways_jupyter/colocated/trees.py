"""Variables that hold arrays, such as a dict of parameters: their arrays travel as arrays, and keep their sharding."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathways_jupyter.colocated.channel import Answer
from pathways_jupyter.colocated.errors import ColocatedError, name_hosts

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
        """What has to be pickled, by name."""
        return {**self.values, **{name: (tree, leaves) for name, (tree, leaves, _) in self.trees.items()}}


def split(inputs: Mapping[str, Any]) -> Inputs:
    """Sorts variables by how they travel."""
    import jax

    arrays: dict[str, jax.Array] = {}
    values: dict[str, Any] = {}
    trees: dict[str, tuple[Any, list[Any], dict[int, str]]] = {}
    for name, value in inputs.items():
        if isinstance(value, jax.Array):
            arrays[name] = value
            continue
        flat, tree = jax.tree_util.tree_flatten_with_path(value)
        places = {
            place: f"{name}{jax.tree_util.keystr(path)}"
            for place, (path, leaf) in enumerate(flat)
            if isinstance(leaf, jax.Array)
        }
        if not places:
            values[name] = value
            continue
        arrays |= {key: flat[place][1] for place, key in places.items()}
        leaves = [None if place in places else leaf for place, (_, leaf) in enumerate(flat)]
        trees[name] = (tree, leaves, places)
    return Inputs(arrays, values, trees)


def join(arrays: Mapping[str, jax.Array], answers: Sequence[Answer]) -> dict[str, Any]:
    """Outputs by name, from the arrays that came back and what hosts say of those that hold several.

    Raises:
      ColocatedError: A variable is built in another way on other hosts.
    """
    import jax
    from jax.experimental.colocated_python import serialization

    found: dict[str, Any] = dict(arrays)
    told = {answer.host.index: answer.head["trees"] for answer in answers}
    for name in next(iter(told.values())):
        built = {index: serialization._deserialize(base64.b64decode(trees[name])) for index, trees in told.items()}
        (first, (tree, keys)), *others = built.items()
        different = [index for index, (other, _) in others if other != tree]
        if different:
            raise ColocatedError(
                f"Output {name} is not built in the same way on host {first} and {name_hosts(different)}.",
                hint="Give it one structure on every host; names stay on the hosts meanwhile.",
            )
        found[name] = jax.tree_util.tree_unflatten(tree, [found.pop(key) for key in keys])
    return found
