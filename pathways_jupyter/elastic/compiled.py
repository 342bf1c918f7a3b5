"""The step of a training run, compiled for each mesh that it runs on, and ahead for those that it may run on next."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.shardings import is_weak
from pathways_jupyter.elastic import reshard

if TYPE_CHECKING:
    import jax

Step = Callable[[Any, Any], tuple[Any, Mapping[str, Any]]]


@dataclass
class _Promise:
    """A compiled step, or an error, when it is there."""

    step: Any = None
    error: Exception | None = None
    ready: interrupts.InterruptibleEvent = field(default_factory=interrupts.InterruptibleEvent)


class CompiledSteps:
    """Compiled steps by their mesh and the shapes of their arrays; each is compiled once, on whichever thread is first.

    Args:
      step: A pure function ``(state, batch) -> (state, metrics)``; its state is donated.
      batch_spec: How a batch is partitioned; None: its first axis over all axes of the mesh.
    """

    def __init__(self, step: Step, batch_spec: jax.sharding.PartitionSpec | None = None) -> None:
        self._step = step
        self._batch_spec = batch_spec
        self._lock = threading.Lock()
        self._made: dict[Hashable, _Promise] = {}

    def batch_sharding(self, mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
        """Return how batches are placed on `mesh`."""
        import jax

        spec = self._batch_spec
        if spec is None:
            spec = jax.sharding.PartitionSpec(tuple(mesh.axis_names))
        return jax.sharding.NamedSharding(mesh, spec)

    def parts(self, mesh: jax.sharding.Mesh) -> int:
        """Return into how many parts `mesh` divides the rows of a batch."""
        spec = self.batch_sharding(mesh).spec
        first = spec[0] if len(spec) else None
        axes = first if isinstance(first, tuple) else (first,)
        return math.prod(mesh.shape[axis] for axis in axes if axis is not None)

    def has(self, mesh: jax.sharding.Mesh, batch: Any) -> bool:
        """Return whether the step is compiled for `mesh` and batches like `batch`."""
        made = self._made.get(_key(mesh, batch))
        return made is not None and made.ready.is_set()

    def run(self, mesh: jax.sharding.Mesh, state: Any, batch: Any, *, moved: bool) -> Any:
        """Dispatch the step on `mesh`, which donates `state`; return the next state, and the metrics.

        Args:
          moved: Whether `state` is not what the step before returned.

        Raises:
          JaxRuntimeError: The proxy is gone.
          Exception: See :meth:`on`.
        """
        import jax

        step = self.on(mesh, state, batch)
        for leaf in jax.tree.leaves((state, batch) if moved else batch):
            # A compiled function asks the proxy for the layouts of its arguments, but for results and those that were
            # asked for before. It does so in JAX's C++ code, where a proxy that is lost at that moment ends this
            # process; here it is an error.
            _ = getattr(leaf, "format", None)
        return step(state, batch)

    def on(self, mesh: jax.sharding.Mesh, state: Any, batch: Any) -> Any:
        """Return the step compiled for `mesh` and arrays like `state` and `batch`; waits if it is being compiled.

        Raises:
          Exception: The compilation failed; it is tried again with the next call.
        """
        key, made, mine = _key(mesh, batch), self._made, _Promise()
        # All of it in one block: an Interrupt at any moment must not leave a promise that is never kept.
        try:
            with self._lock:
                promise = made.setdefault(key, mine)
            if promise is mine:
                mine.step = self._compile(mesh, state, batch)
        except BaseException as error:
            mine.error = error if isinstance(error, Exception) else RuntimeError("interrupted")
            with self._lock:
                if made.get(key) is mine:
                    del made[key]
            raise
        finally:
            mine.ready.set()
        promise.ready.wait()
        if promise.error is not None:
            raise promise.error
        return promise.step

    def ahead(
        self, meshes: Iterable[tuple[jax.sharding.Mesh, Any]], state: Any, failed: Callable[[Exception], None]
    ) -> None:
        """Compile for each of the `meshes`, with the batch's shapes beside it, on a thread of its own.

        Args:
          failed: Called with the first error, which ends it: the step is then compiled when it is needed.
        """
        import jax

        # Only the shapes: the arrays may be donated meanwhile.
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=getattr(leaf, "sharding", None), weak_type=is_weak(leaf)
            ),
            state,
        )
        made, chosen = self._made, list(meshes)

        def run() -> None:
            for mesh, batch in chosen:
                if made is not self._made:
                    # The devices are gone.
                    return
                try:
                    self.on(mesh, shapes, batch)
                except Exception as error:
                    failed(error)
                    return

        threading.Thread(target=run, name="elastic-precompile", daemon=True).start()

    def clear(self) -> None:
        """Forget all compiled steps, because their devices are gone."""
        with self._lock:
            # Another table, and not an emptied one: a thread that still compiles finds by it that it is too late.
            self._made = {}

    def _compile(self, mesh: jax.sharding.Mesh, state: Any, batch: Any) -> Any:
        import jax

        # The new state keeps the old one's shardings, so that every step can be followed by the next.
        shardings = reshard.shardings_on(state, mesh)
        batch_sharding = self.batch_sharding(mesh)
        states = jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=sharding, weak_type=is_weak(leaf)
            ),
            state,
            shardings,
        )
        batches = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=batch_sharding), batch
        )
        return jax.jit(self._step, donate_argnums=0, out_shardings=(shardings, None)).lower(states, batches).compile()


def _key(mesh: jax.sharding.Mesh, batch: Any) -> Hashable:
    import jax

    return mesh, tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in jax.tree.leaves(batch))
