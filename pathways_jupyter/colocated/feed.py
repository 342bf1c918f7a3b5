"""A data-loading iterator that runs on the hosts: each loads its part of a batch, and the notebook gets global arrays.

The bytes of a batch go from a host to its own chips and never through the notebook. Batches are asked for ahead, so
that the next one is on its way while a step computes.
"""

from __future__ import annotations

import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pathways_jupyter.colocated import array_moves, cell_run, plain, preflight, results
from pathways_jupyter.colocated.channel import ROW_BYTES, Answer, channel, explain
from pathways_jupyter.colocated.errors import CheckError, ColocatedError
from pathways_jupyter.colocated.functions import finish, hosts_of, source_of
from pathways_jupyter.colocated.interruptible_wait import uninterrupted, wait
from pathways_jupyter.colocated.memory import MEMORY
from pathways_jupyter.colocated.ship import Shipped

if TYPE_CHECKING:
    import jax

Make = Callable[[int, int], Iterable[Any]]


class Batches(Iterator[Any]):
    """Global batches from an iterator on each host; made by :func:`iterator`."""

    def __init__(self, make: Make, sharding: Any, *, ahead: int, on_cpu: bool, unpickle: bool | None) -> None:
        import jax

        if not isinstance(sharding, jax.sharding.NamedSharding):
            raise CheckError(
                f"An iterator needs a NamedSharding, not a {type(sharding).__name__}.",
                hint='For example: jax.NamedSharding(jax.sharding.Mesh(jax.devices(), ("data",)), jax.P("data")).',
            )
        self._key = uuid.uuid4().hex[:12]
        self._ahead = ahead
        self._on_cpu = on_cpu
        on = hosts_of(sharding)
        on_cpus = array_moves.on_cpus(sharding, on)
        self._way = channel(on, on_cpus.device_set)
        data = preflight.pickled(make, names={getattr(make, "__name__", "make"): make})
        cell_run.check(self._way.hosts, (), data)
        head = {
            "op": "open",
            "call": self._key,
            "object": self._key,
            "ahead": ahead,
            **source_of(make),
            "limit": cell_run.LIMIT,
            "live": True,
            "unpickle": (trusted := cell_run.trusts(unpickle)),
        }
        answers = cell_run.ask(array_moves.Prepared(self._way), head, [data], None)
        finish(self._key, answers, quiet=False)
        batch = plain.Reader("A batch", answers[0].parts, unpickle=trusted)
        self._tree = jax.tree_util.tree_structure(batch.read(answers[0].head["value"]["written"]))
        self._targets = _targets(answers, on_cpus)
        specs = [jax.ShapeDtypeStruct(shape, dtype, sharding=where) for shape, dtype, where in self._targets]
        self._step = self._way.compiled(
            Shipped("feed", ROW_BYTES, self._targets), lambda request: [self._way.row_spec(), *specs]
        )
        self._request = self._way.request({"call": self._key, "object": self._key}, ())
        self._coming: deque[list[jax.Array]] = deque()
        self._over = False
        weakref.finalize(self, MEMORY.release, self._key).atexit = False

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        """The next batch: a pytree as the hosts' iterators give it, of global arrays.

        Raises:
          HostError: An iterator raised on a host.
          StopIteration: Some host's iterator ended; what others may still have is left.
        """
        import jax

        if self._over:
            raise StopIteration
        try:
            while len(self._coming) <= self._ahead:
                self._coming.append(self._step(self._request))
        except Exception as error:
            self.close()
            raise explain(error) from error
        row, *batch = self._coming[0]
        self._read(row)
        # Only now, so that an interrupt loses none.
        self._coming.popleft()
        if not self._on_cpu:
            batch = [array_moves.to_chips("batch", array, self._way.hosts) for array in batch]
        return jax.tree_util.tree_unflatten(self._tree, batch)

    def close(self) -> None:
        """Ends the iterators on the hosts."""
        self._over = True
        self._coming.clear()
        MEMORY.release(self._key)

    def _read(self, row: Any) -> None:
        def read() -> tuple[Answer, ...]:
            try:
                return self._way.read(row)
            except Exception as error:
                raise explain(error) from error

        try:
            answers = uninterrupted(wait(self._way.hosts, read))
        except Exception:
            self.close()
            raise
        failed = [
            results.HostResult(answer.host, (), failure=results.failure(answer.host, answer.head["error"]))
            for answer in answers
        ]
        raised = results.CallResult(self._key, tuple(failed)).error()
        if raised is not None:
            self.close()
            raise raised
        if any(answer.head["end"] for answer in answers):
            self.close()
            raise StopIteration


def iterator(
    make: Make, *, sharding: Any, ahead: int = 2, on_cpu: bool = False, unpickle: bool | None = None
) -> Batches:
    """Runs a data-loading iterator on every host of a sharding's devices.

    ::

        def load(host, count):
            for path in sorted(glob("/data/*.npy"))[host::count]:
                yield {"x": np.load(path)}

        for batch in colocated.iterator(load, sharding=jax.NamedSharding(mesh, jax.P("data"))):
            state = train_step(state, batch["x"])

    Args:
      make: Called on each host with its place among the hosts and their number; gives pytrees of NumPy arrays, the
        host's part of a batch along the first axis. Every batch has the first one's shapes; a smaller last one is left
        out.
      sharding: How a batch lies on the chips: its first axis over the hosts.
      ahead: How many batches are asked for before they are needed, and again how many a host loads ahead.
      on_cpu: Leave batches on the hosts' CPU devices.
      unpickle: Trust the hosts to run code here: a batch may be any pytree; default: the session's setting. Otherwise
        it is one of containers, and of dataclasses and named tuples that this program has defined.

    Raises:
      HostError: `make`, or its first batch, raised on a host.
      ColocatedError: Hosts give batches of different shapes.
      CheckError: `make` cannot be sent.
    """
    return Batches(make, sharding, ahead=ahead, on_cpu=on_cpu, unpickle=unpickle)


def _targets(answers: Any, sharding: Any) -> list[tuple[tuple[int, ...], Any, Any]]:
    """Global shape, dtype and sharding of every array, from each host's part."""
    import jax
    import numpy as np

    specs_by_host = {answer.host.index: answer.head["outputs"] for answer in answers}
    first = next(iter(specs_by_host.values()))
    if any(specs != first for specs in specs_by_host.values()):
        listed = "; ".join(
            f"host {index}: {', '.join(_describe(spec) for spec in specs)}" for index, specs in specs_by_host.items()
        )
        raise ColocatedError(f"Hosts give batches of different shapes: {listed}.")
    targets = []
    for spec in first:
        if not spec["shape"]:
            raise ColocatedError("A batch holds a number where an array was expected.", hint="Give it a batch axis.")
        rows, *rest = spec["shape"]
        parts = _parts(sharding)
        local = _local_parts(sharding, parts, answers)
        if rows % local:
            raise ColocatedError(
                f"A host's {rows} rows do not divide among the {local} parts of the batch that lie on it.",
                hint="Choose a batch size that is a multiple of it.",
            )
        dtype = jax.dtypes.canonicalize_dtype(np.dtype(spec["dtype"]))
        targets.append(((rows // local * parts, *rest), dtype, sharding))
    return targets


def _parts(sharding: Any) -> int:
    """Into how many parts the first axis is cut."""
    axes = sharding.spec[0] if len(sharding.spec) else None
    names = axes if isinstance(axes, tuple) else (axes,) if axes is not None else ()
    parts = 1
    for name in names:
        parts *= sharding.mesh.shape[name]
    return parts


def _local_parts(sharding: Any, parts: int, answers: Any) -> int:
    """How many of them are on a host."""
    indices = sharding.devices_indices_map((parts,)) if parts > 1 else {}
    counts = {
        len({indices[cpu][0].start or 0 for cpu in answer.host.cpus if cpu in indices}) or 1 for answer in answers
    }
    if len(counts) > 1:
        raise ColocatedError("The batch's first axis does not lie evenly on the hosts.", hint="Use another mesh.")
    return counts.pop()


def _describe(spec: Any) -> str:
    return f"{spec['dtype']}{spec['shape']}"
