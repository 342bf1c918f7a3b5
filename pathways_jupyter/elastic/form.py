"""The form of a training state: what remains of it when the numbers are taken out, and what puts them in again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathways_jupyter.elastic import reshard

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class Form:
    """What a state's arrays are, apart from their numbers.

    Attributes:
      structure: The tree that the arrays are the leaves of.
      shapes: The shape and type of each.
      specs: The partition of each.
      impls: For each that is a typed PRNG key, the implementation: what is copied is the key's numbers.
    """

    structure: Any
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    specs: tuple[Any, ...]
    impls: tuple[Any, ...]

    @classmethod
    def of(cls, state: Any) -> tuple[Form, list[Any]]:
        """Return the form of `state`, and its leaves, with the numbers of PRNG keys in their place."""
        import jax
        import numpy as np

        leaves, structure = jax.tree.flatten(state)
        keys = [
            isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves
        ]
        impls = tuple(jax.random.key_impl(leaf) if key else None for leaf, key in zip(leaves, keys, strict=True))
        plain = [jax.random.key_data(leaf) if key else leaf for leaf, key in zip(leaves, keys, strict=True)]
        plain = [leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for leaf in plain]
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in plain)
        return cls(structure, shapes, tuple(reshard.spec_of(leaf) for leaf in plain), impls), plain

    @property
    def nbytes(self) -> int:
        """Bytes of the state, without its replicas."""
        return sum(each.size * each.dtype.itemsize for each in self.shapes)

    def shardings(self, mesh: jax.sharding.Mesh) -> list[jax.sharding.NamedSharding]:
        """Return the sharding of each leaf on `mesh`."""
        import jax

        return [jax.sharding.NamedSharding(mesh, spec) for spec in self.specs]

    def whole(self, arrays: Sequence[Any]) -> Any:
        """Return the state that has `arrays` as its leaves."""
        import jax

        return self.structure.unflatten(
            array if impl is None else jax.random.wrap_key_data(array, impl=impl)
            for array, impl in zip(arrays, self.impls, strict=True)
        )
