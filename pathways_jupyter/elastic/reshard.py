"""Move a tree of arrays to another mesh, from whatever copies of its pieces have survived.

An array whose sharding replicates it over slices has each piece on several slices. When one slice is gone, the array as
a whole raises DATA_LOSS, but pieces that were taken out of it before can still be read on the other slices. So a new
array is put together piece by piece: a device that holds the right piece keeps it, without any copy; another gets a
copy from a device that has it; and only pieces that no device holds as they are wanted go through the notebook.

A state's :class:`Form` is what such a move keeps: all but the numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pathways_jupyter.base.shardings import is_weak, typed
from pathways_jupyter.base.text import array_type, each_of
from pathways_jupyter.elastic.errors import ElasticRuntimeError, slices_named
from pathways_jupyter.elastic.record import listed
from pathways_jupyter.saved import arrays as stored

if TYPE_CHECKING:
    import jax


Index = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Pieces:
    """An array that was taken apart into its pieces, which can be lost one by one.

    It must be taken apart while all of them are there: pieces that are taken out of an array after it has lost one are
    as lost as the whole.

    Attributes:
      placed: Each device's piece, and which part of the array it is.
    """

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    memory_kind: str | None
    placed: tuple[tuple[jax.Device, Index, jax.Array], ...]

    @classmethod
    def of(cls, array: jax.Array) -> Pieces:
        """Take `array` apart, without copying it."""
        placed = [(shard.device, _key(shard.index, array.shape), shard.data) for shard in array.addressable_shards]
        return cls(array.shape, array.dtype, is_weak(array), array.sharding.memory_kind, tuple(placed))

    def on(self, slices: Collection[int]) -> list[jax.Array]:
        """Return the pieces on `slices`."""
        return [piece for device, _, piece in self.placed if _slice(device) in slices]

    def spare(self, lost: Container[int]) -> Iterator[jax.Array]:
        """Yield all pieces but one of each part of the array, by choice none of the `lost`, by their ids."""
        parts: set[Index] = set()
        for _, index, piece in sorted(self.placed, key=lambda each: id(each[2]) in lost):
            if index in parts:
                yield piece
            parts.add(index)

    def living(self) -> Pieces | None:
        """Return this without the pieces that were deleted; None if not each part of the array is left."""
        placed = tuple(each for each in self.placed if not each[2].is_deleted())
        is_whole = {index for _, index, _ in placed} == {index for _, index, _ in self.placed}
        return replace(self, placed=placed) if is_whole else None


def spec_of(leaf: Any) -> jax.sharding.PartitionSpec:
    """Return the partition of an array; without a named sharding (e.g. NumPy's) it is replicated."""
    import jax

    sharding = getattr(leaf, "sharding", None)
    return sharding.spec if isinstance(sharding, jax.sharding.NamedSharding) else jax.sharding.PartitionSpec()


def shardings_on(tree: Any, mesh: jax.sharding.Mesh) -> Any:
    """Return, for every array of `tree`, a sharding on `mesh` with its partition and in the same kind of memory."""
    import jax

    return jax.tree.map(
        lambda leaf: jax.sharding.NamedSharding(mesh, spec_of(leaf), memory_kind=_memory_of(leaf)), tree
    )


def _memory_of(leaf: Any) -> str | None:
    """Return the kind of memory that an array is in; None, for the devices' own, without a sharding."""
    kind: str | None = getattr(getattr(leaf, "sharding", None), "memory_kind", None)
    return kind


def spare_copies(tree: Any) -> int:
    """Return how many slices may be lost so that every piece of every array of `tree` is still on another one."""
    import jax

    spare = []
    # Many arrays have few different shardings.
    for sharding, shape in {
        (leaf.sharding, leaf.shape) for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)
    }:
        holders: dict[Index, set[int]] = {}
        for device, index in sharding.devices_indices_map(shape).items():
            holders.setdefault(_key(index, shape), set()).add(_slice(device))
        spare.append(min(map(len, holders.values())) - 1)
    return min(spare, default=0)


def moved(tree: Any, shardings: Any, *, usable: Collection[int]) -> Any:
    """Return `tree` with `shardings`, made of the pieces on the slices `usable`.

    Args:
      tree: Arrays, of JAX or NumPy, or :class:`Pieces`.
      shardings: A sharding for each; their devices must be on usable slices.
      usable: Slices whose pieces can be read.

    Raises:
      ElasticRuntimeError: Some piece was only on other slices.
    """
    import jax

    leaves, structure = jax.tree.flatten(tree)
    targets = structure.flatten_up_to(shardings)
    others = [index for index, leaf in enumerate(leaves) if not isinstance(leaf, (jax.Array, Pieces))]
    # NumPy arrays in one call, so that their transfers overlap.
    put = jax.device_put([leaves[index] for index in others], [targets[index] for index in others])
    made = dict(zip(others, put, strict=True))
    return structure.unflatten(
        made[index] if index in made else _moved(leaf, sharding, usable)
        for index, (leaf, sharding) in enumerate(zip(leaves, targets, strict=True))
    )


def _moved(array: jax.Array | Pieces, sharding: jax.sharding.Sharding, usable: Collection[int]) -> jax.Array:
    import jax

    if isinstance(array, jax.Array):
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            # Typed keys have no memory kinds and cannot be read as NumPy arrays; the numbers that they wrap can.
            numbers = _moved(jax.random.key_data(array), sharding, usable)
            return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(array))
        array = Pieces.of(array)
    here = {(device, key): piece for device, key, piece in array.placed if _slice(device) in usable}
    anywhere = {key: piece for (_, key), piece in here.items()}
    staged = sharding.with_memory_kind(array.memory_kind)
    pieces = []
    for device, index in staged.addressable_devices_indices_map(array.shape).items():
        key = _key(index, array.shape)
        if (device, key) in here:
            pieces.append(here[device, key])
        elif key in anywhere:
            target = jax.sharding.SingleDeviceSharding(device, memory_kind=array.memory_kind)
            pieces.append(jax.device_put(anywhere[key], target))
        else:
            # No device has this piece as it is wanted, so the whole array goes through the notebook.
            joined = jax.device_put(_assembled(array, anywhere), sharding)
            break
    else:
        joined = jax.make_array_from_single_device_arrays(array.shape, staged, pieces)
        if sharding.memory_kind != array.memory_kind:
            joined = jax.device_put(joined, sharding)
    moved_array: jax.Array = typed(joined, weak_type=array.weak_type, committed=True)
    return moved_array


def _assembled(array: Pieces, pieces: dict[Index, jax.Array]) -> np.ndarray:
    """Return the whole array in the notebook's memory."""
    array_data = np.empty(array.shape, array.dtype)
    filled = 0
    for key, piece in pieces.items():
        array_data[tuple(slice(*bounds) for bounds in key)] = np.asarray(piece)
        filled += piece.size
    if filled < array_data.size:
        raise ElasticRuntimeError(
            f"An array {array_type(array)} has pieces on lost slices only.",
            hint="Replicate the state over slices, or keep snapshots in the notebook's memory.",
        )
    return array_data


def _slice(device: jax.Device) -> int:
    return int(getattr(device, "slice_index", 0))


def _key(index: tuple[slice, ...], shape: tuple[int, ...]) -> Index:
    return tuple(each.indices(size)[:2] for each, size in zip(index, shape, strict=True))


@dataclass(frozen=True)
class Form:
    """Shapes, types and shardings of a state's arrays.

    Attributes:
      structure: The tree that the arrays are the leaves of.
      shapes: The shape and type of each; a number of Python has a weak type, as in JAX's own computations.
      specs: The partition of each.
      memories: The kind of memory that each is in.
      impls: For each that is a typed PRNG key, the implementation: what is copied is the key's numbers.
    """

    structure: Any
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    specs: tuple[Any, ...]
    memories: tuple[str | None, ...]
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
        weak = map(is_weak, leaves)
        shapes = tuple(
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=each) for leaf, each in zip(plain, weak, strict=True)
        )
        return cls(structure, shapes, tuple(map(spec_of, plain)), tuple(map(_memory_of, plain)), impls), plain

    @property
    def nbytes(self) -> int:
        """Bytes of the state, without its replicas."""
        return sum(each.size * each.dtype.itemsize for each in self.shapes)

    def difference(self, state: Any) -> str:
        """Return how the arrays of `state` differ from those of this form in names or shapes, as a clause; else empty.

        No values are read: they may be gone, with the proxy that they were on.
        """
        import jax

        named = jax.tree_util.tree_leaves_with_path(self.structure.unflatten(self.shapes))
        # The numbers of a key have one dimension more.
        mine = {
            jax.tree_util.keystr(path): leaf.shape if impl is None else leaf.shape[:-1]
            for (path, leaf), impl in zip(named, self.impls, strict=True)
        }
        leaves = jax.tree_util.tree_leaves_with_path(state)
        given = {jax.tree_util.keystr(path): np.shape(leaf) for path, leaf in leaves}
        for name in sorted(mine.keys() | given.keys()):
            if name not in mine or name not in given:
                return f"state{name} is only {'here' if name in given else 'there'}"
            if mine[name] != given[name]:
                return f"state{name} has the shape {mine[name]} there and {given[name]} here"
        return ""

    def shardings(self, mesh: jax.sharding.Mesh) -> list[jax.sharding.NamedSharding]:
        """Return the sharding of each leaf on `mesh`."""
        import jax

        return [
            jax.sharding.NamedSharding(mesh, spec, memory_kind=kind)
            for spec, kind in zip(self.specs, self.memories, strict=True)
        ]

    def whole(self, arrays: Sequence[Any]) -> Any:
        """Return the state that has `arrays` as its leaves."""
        import jax

        def leaf(array: Any, shape: jax.ShapeDtypeStruct, impl: Any) -> Any:
            if impl is not None:
                return jax.random.wrap_key_data(array, impl=impl)
            return typed(array, weak_type=shape.weak_type, committed=True) if isinstance(array, jax.Array) else array

        return self.structure.unflatten(map(leaf, arrays, self.shapes, self.impls))


def require_values(state: Any, error: Exception) -> None:
    """After `error`, fail with the names of the arrays of a given `state` that have no values, if any are.

    No other try would bring them back.

    Raises:
      ElasticRuntimeError: Some have none; `error` is its cause.
    """
    import jax

    arrays = {
        f"state{jax.tree_util.keystr(path)}": leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if isinstance(leaf, jax.Array)
    }
    named = slices_named(error)
    on = {"on": f"{listed(named)}, which went down"} if named else {}
    reasons = stored.lost(list(arrays.values()), **on)
    reasons |= {
        id(each): "was deleted, donated, or lost with a connection" for each in arrays.values() if each.is_deleted()
    }
    for reason in sorted(set(reasons.values())):
        names = [name for name, array in arrays.items() if reasons.get(id(array)) == reason]
        raise ElasticRuntimeError(
            f"The state that train_loop was given has no values: {each_of(names, reason)}.",
            hint="Make the state again, then call train_loop again.",
        ) from error
