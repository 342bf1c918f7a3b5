"""Copies of the training state that survive the loss of a slice.

Two places can hold them. *On the hosts*: each array is copied into its devices' host memory, with its sharding; a copy
costs no transfer, and if the state is replicated over slices, each slice's copy protects the others. *In the
notebook*: each array is read into this process's memory; that also survives the loss of the proxy, and serves states
that are sharded over slices, at the cost of a transfer. In both cases training continues while the copy is made, and a
snapshot counts only when all of it has arrived.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pathways_jupyter import interruptible
from pathways_jupyter.elastic import reshard
from pathways_jupyter.elastic.errors import ElasticRuntimeError, is_slice_down

if TYPE_CHECKING:
    import jax

Place = Literal["auto", "hosts", "notebook"]

_SHARE_OF_MEMORY = 0.5
"""Share of this machine's available memory that snapshots in the notebook may take."""

logger = logging.getLogger(__name__)


@dataclass
class Snapshot:
    """The state before step number `step`.

    Attributes:
      leaves: The copies: on the hosts, taken apart into pieces, or NumPy arrays.
      structure: The tree that they are the leaves of.
      specs: The partition of each.
      impls: For each leaf that was a typed PRNG key, the implementation; its copy is the key's numbers.
      extra: The state of the data iterator, or anything else that is not an array.
      place: ``hosts`` or ``notebook``.
      nbytes: Bytes of the state, without its replicas.
      seconds: How long it took until the copy was whole; 0 before.
      error: Why it will never be whole; None otherwise.
    """

    step: int
    leaves: list[Any]
    structure: Any
    specs: list[Any]
    impls: list[Any]
    extra: Any
    place: Place
    nbytes: int
    seconds: float = 0.0
    error: BaseException | None = None
    finished: interruptible.Event = field(default_factory=interruptible.Event, repr=False)

    @property
    def whole(self) -> bool:
        """Whether all of it has arrived."""
        return self.finished.is_set() and self.error is None

    def on(self, mesh: jax.sharding.Mesh, *, usable: Collection[int]) -> Any:
        """Return the state on `mesh`, with the partition that it had.

        Args:
          usable: The slices that are up.

        Raises:
          ElasticRuntimeError: Some piece was only on slices that are lost.
          JaxRuntimeError: Another slice was lost meanwhile.
        """
        import jax

        shardings = [jax.sharding.NamedSharding(mesh, spec) for spec in self.specs]
        try:
            arrays = self._moved(shardings, usable)
        except jax.errors.JaxRuntimeError as error:
            readable = _readable(self.leaves, usable) if is_slice_down(error) else frozenset(usable)
            if readable == frozenset(usable):
                raise
            # A slice that was lost since the snapshot was taken is up again; its pieces are not.
            arrays = self._moved(shardings, readable)
        keyed = (
            array if impl is None else jax.random.wrap_key_data(array, impl=impl)
            for array, impl in zip(arrays, self.impls, strict=True)
        )
        return self.structure.unflatten(keyed)

    def _moved(self, shardings: list[Any], usable: Collection[int]) -> list[Any]:
        import jax

        arrays: list[Any] = reshard.moved(self.leaves, shardings, usable=usable)
        # Copies held in device memory may have become parts of the arrays, and must outlive their donation.
        held = [isinstance(leaf, reshard.Pieces) and leaf.memory_kind == "device" for leaf in self.leaves]
        arrays = [
            jax.device_put(array, array.sharding, may_alias=False) if on_device else array
            for array, on_device in zip(arrays, held, strict=True)
        ]
        return list(jax.block_until_ready(arrays))


class Snapshots:
    """The last snapshots of one training run.

    Args:
      keep: How many whole snapshots to keep; an older one is dropped when a newer one is whole.
      where: ``hosts``, ``notebook``, or ``auto``: on the hosts if another slice has a copy of every piece.
      limit_bytes: Most bytes that all snapshots may take in the notebook; default: half of the available memory.

    Raises:
      ValueError: `keep` is less than 1.
    """

    def __init__(self, *, keep: int = 2, where: Place = "auto", limit_bytes: int | None = None) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}.")
        self.keep = keep
        self.where = where
        self.limit_bytes = limit_bytes
        self._kept: list[Snapshot] = []
        self._lock = threading.Lock()

    def place(self, state: Any) -> Place:
        """Return where snapshots of `state` are held: ``hosts`` or ``notebook``."""
        if self.where != "auto":
            return self.where
        return "hosts" if reshard.spare_copies(state) > 0 and _host_memory(state) else "notebook"

    def check(self, state: Any) -> int:
        """Return the bytes that snapshots of `state` will take in the notebook.

        Raises:
          ElasticRuntimeError: There is not enough memory for them.
        """
        if self.place(state) == "hosts":
            return 0
        # One more than is kept, because a new one is complete before the oldest is dropped.
        size = _nbytes(state)
        needed = (self.keep + 1) * size
        limit = self.limit_bytes if self.limit_bytes is not None else int(_SHARE_OF_MEMORY * _available_bytes())
        if needed > limit:
            raise ElasticRuntimeError(
                f"Snapshots need {_gigabytes(needed)} of memory in this process ({self.keep} kept and one in the "
                f"making, {_gigabytes(size)} each), but may take {_gigabytes(limit)}.",
                hint="Keep fewer, raise limit_bytes, or replicate the state over slices: then the hosts hold them.",
            )
        return needed

    def take(self, step: int, state: Any, extra: Any = None) -> Snapshot:
        """Start to copy `state`, as it is before step number `step`, and return at once.

        The arrays may be donated to the next step: the copy is enqueued before it.
        """
        import jax

        place = self.place(state)
        leaves, structure = jax.tree.flatten(state)
        impls = [jax.random.key_impl(leaf) if _is_key(leaf) else None for leaf in leaves]
        plain = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in leaves]
        snapshot = Snapshot(
            step=step,
            # Also for the notebook, because the arrays themselves are gone when the next step has donated them.
            leaves=_copied(plain),
            structure=structure,
            specs=[reshard.spec_of(leaf) for leaf in plain],
            impls=impls,
            extra=copy.deepcopy(extra),
            place=place,
            nbytes=_nbytes(state),
        )
        finish = threading.Thread(target=self._finish, args=(snapshot,), name=f"elastic-snapshot-{step}", daemon=True)
        finish.start()
        return snapshot

    def latest(self) -> Snapshot | None:
        """Return the newest whole snapshot; None if there is none."""
        with self._lock:
            return self._kept[-1] if self._kept else None

    def oldest(self) -> Snapshot | None:
        """Return the oldest snapshot that is still kept; None if there is none."""
        with self._lock:
            return self._kept[0] if self._kept else None

    def drop(self, snapshot: Snapshot) -> None:
        """Forget a snapshot that cannot be read any more; no-op if it is forgotten already."""
        with self._lock:
            self._kept = [each for each in self._kept if each is not snapshot]

    @property
    def nbytes(self) -> int:
        """Bytes of all whole snapshots, without replicas."""
        with self._lock:
            return sum(each.nbytes for each in self._kept)

    def _finish(self, snapshot: Snapshot) -> None:
        """Wait until the copy is complete, and keep it; on a thread of its own."""
        import jax
        import numpy as np

        began = time.monotonic()
        try:
            if snapshot.place == "notebook":
                snapshot.leaves = [np.asarray(leaf) for leaf in snapshot.leaves]
            else:
                copies = snapshot.leaves
                snapshot.leaves = [reshard.Pieces.of(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in copies]
                jax.block_until_ready(copies)
        except Exception as error:
            # A slice was lost while it was copied. The earlier snapshots stay.
            logger.info("the snapshot before step %d was not completed: %s", snapshot.step, error)
            snapshot.error, snapshot.leaves = error, []
        else:
            snapshot.seconds = time.monotonic() - began
            with self._lock:
                # Sorted, because snapshots may finish out of order.
                self._kept = sorted([*self._kept, snapshot], key=lambda each: each.step)[-self.keep :]
        finally:
            snapshot.finished.set()


def _copied(leaves: Sequence[Any]) -> list[Any]:
    """Enqueue a copy of each array into its hosts' memory; where there is none, on its devices."""
    import jax
    import numpy as np

    arrays = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    shardings = []
    for place in arrays:
        sharding = leaves[place].sharding
        shardings.append(sharding.with_memory_kind("pinned_host") if _host_memory(leaves[place]) else sharding)
    copies: list[Any] = [np.array(leaf) if not isinstance(leaf, jax.Array) else None for leaf in leaves]
    # May not alias: an alias would be donated together with the array.
    put = jax.device_put([leaves[place] for place in arrays], shardings, may_alias=False)
    for place, array in zip(arrays, put, strict=True):
        copies[place] = array
    return copies


def _readable(leaves: Sequence[Any], slices: Collection[int]) -> frozenset[int]:
    """Return the slices whose pieces of all arrays can be read."""
    import jax

    readable = set()
    for index in slices:
        pieces = [piece for leaf in leaves if isinstance(leaf, reshard.Pieces) for piece in leaf.on({index})]
        try:
            jax.block_until_ready(pieces)
        except jax.errors.JaxRuntimeError as error:
            if not is_slice_down(error):
                raise
            continue
        readable.add(index)
    return frozenset(readable)


def _host_memory(state: Any) -> bool:
    import jax

    devices = {device for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array) for device in leaf.devices()}
    return bool(devices) and all(
        any(memory.kind == "pinned_host" for memory in device.addressable_memories()) for device in devices
    )


def _is_key(leaf: Any) -> bool:
    import jax

    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _nbytes(state: Any) -> int:
    import jax
    import numpy as np

    return sum(
        int(leaf.nbytes if hasattr(leaf, "nbytes") else np.asarray(leaf).nbytes) for leaf in jax.tree.leaves(state)
    )


def _available_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    # Not Linux: only the size of the memory is known.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"
