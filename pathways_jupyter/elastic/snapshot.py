"""One copy of the training state: how it is made, and how it is put on the slices that are up."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.elastic import health, reshard
from pathways_jupyter.elastic.errors import ElasticRuntimeError, is_slice_down
from pathways_jupyter.elastic.goodput import SnapshotCost
from pathways_jupyter.elastic.reshard import Form

if TYPE_CHECKING:
    import jax

    from pathways_jupyter.elastic.checkpoints import Checkpoints

_HOSTS = "pinned_host"


@dataclass
class Snapshot:
    """The state before step number `step`; the copies of it are made while training continues.

    Attributes:
      extra: The position of the data iterator, or anything else that is not an array.
      tier: Where the copy is that counts first: ``hosts``, ``notebook`` or ``directory``.
      pieces: The copies on the hosts, taken apart; None if there are none.
      arrays: NumPy arrays in this process; None if there are none.
      checkpoints: Where it has been written to; None if it has not.
      error: Why no copy will ever be whole; None otherwise.
      unwritten: Why it was not written where it should have been; None otherwise.
      ready: Set when a copy is whole, or never will be.
      finished: Set when all copies are.
      cost: What it has cost so far.
    """

    step: int
    form: Form
    extra: Any
    tier: str
    pieces: list[Any] | None = None
    arrays: list[Any] | None = None
    checkpoints: Checkpoints | None = None
    error: BaseException | None = None
    unwritten: Exception | None = None
    ready: interrupts.InterruptibleEvent = field(default_factory=interrupts.InterruptibleEvent, repr=False)
    finished: interrupts.InterruptibleEvent = field(default_factory=interrupts.InterruptibleEvent, repr=False)
    cost: SnapshotCost = field(default_factory=SnapshotCost, repr=False)

    @property
    def outlives_proxy(self) -> bool:
        """Return whether it has a copy that is not on the hosts."""
        return self.arrays is not None or self.checkpoints is not None

    def wait(self, *, everywhere: bool = False) -> None:
        """Hold training up until a copy is whole, or all are; or never will be."""
        with self.cost.waiting():
            (self.finished if everywhere else self.ready).wait()

    def on(self, mesh: jax.sharding.Mesh, *, usable: Collection[int]) -> Any:
        """Return the state on `mesh`, with the partition that it had.

        Args:
          usable: The slices that are up.

        Raises:
          ElasticRuntimeError: Some piece was only on slices that are lost, and there is no other copy.
          JaxRuntimeError: Another slice was lost meanwhile.
        """
        import jax

        shardings = self.form.shardings(mesh)
        # A suspend keeps one of each; with a proxy that was replaced while no run was there, all are gone.
        self.pieces = pieces = None if self.pieces is None else _living(self.pieces)
        if pieces is not None:
            try:
                return self.form.whole(self._from_hosts(pieces, shardings, usable))
            except ElasticRuntimeError:
                if not self.outlives_proxy:
                    raise
        if self.arrays is not None:
            # Not an alias, because a step donates its state, and this copy may be needed once more.
            arrays = jax.device_put(self.arrays, shardings, may_alias=False)
        elif self.checkpoints is not None:
            arrays = self.checkpoints.read(self.step, self.form, shardings)
        else:
            raise ElasticRuntimeError(f"The snapshot before step {self.step} is gone.")
        return self.form.whole(jax.block_until_ready(arrays))

    def _from_hosts(self, pieces: list[Any], shardings: list[Any], usable: Collection[int]) -> list[Any]:
        import jax

        try:
            return _joined(pieces, shardings, usable)
        except jax.errors.JaxRuntimeError as error:
            if not is_slice_down(error):
                raise
            taken = [leaf for leaf in pieces if isinstance(leaf, reshard.Pieces)]
            readable = health.readable({index: [leaf.on({index}) for leaf in taken] for index in usable})
            if readable == frozenset(usable):
                raise
            # A slice that was lost since the snapshot was taken is up again; its pieces are not.
            return _joined(pieces, shardings, readable)


def _living(pieces: list[Any]) -> list[Any] | None:
    living = [leaf.living() if isinstance(leaf, reshard.Pieces) else leaf for leaf in pieces]
    return None if any(leaf is None for leaf in living) else living


def _joined(pieces: list[Any], shardings: list[Any], usable: Collection[int]) -> list[Any]:
    import jax

    arrays: list[Any] = reshard.moved(pieces, shardings, usable=usable)
    # Copies held in device memory may have become parts of the arrays, and must outlive their donation.
    held = [isinstance(leaf, reshard.Pieces) and leaf.memory_kind == "device" for leaf in pieces]
    arrays = [
        jax.device_put(array, array.sharding, may_alias=False) if on_device else array
        for array, on_device in zip(arrays, held, strict=True)
    ]
    return list(jax.block_until_ready(arrays))


def on_hosts(state: Any) -> bool:
    """Return whether the devices of `state` have memory of their hosts for copies."""
    import jax

    shardings = {leaf.sharding for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)}
    devices = {device for sharding in shardings for device in sharding.device_set}
    return bool(devices) and all(
        any(memory.kind == _HOSTS for memory in device.addressable_memories()) for device in devices
    )


def copied(leaves: Sequence[Any]) -> list[Any]:
    """Enqueue a copy of each array into its hosts' memory; where there is none, on its devices."""
    import jax
    import numpy as np

    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    shardings = [array.sharding for array in arrays]
    if on_hosts(arrays):
        shardings = [sharding.with_memory_kind(_HOSTS) for sharding in shardings]
    # In one call, so that they overlap. May not alias: an alias would be donated together with the array.
    put = iter(jax.device_put(arrays, shardings, may_alias=False))
    return [next(put) if isinstance(leaf, jax.Array) else np.array(leaf) for leaf in leaves]
