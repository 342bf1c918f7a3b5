"""A data-loading iterator that runs on the hosts: each loads its part of a batch, and the notebook gets global arrays.

The bytes of a batch go from a host to its own chips and never through the notebook. Batches are requested ahead, so
that the next one is on its way while a step computes.
"""

from __future__ import annotations

import itertools
import math
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.colocated import array_moves, cell_run, preflight, results
from pathways_jupyter.colocated.channel import ROW_BYTES, Answer, channel, explain
from pathways_jupyter.colocated.errors import CheckError, ColocatedError, LostError
from pathways_jupyter.colocated.functions import raise_failures, source_of
from pathways_jupyter.colocated.host import hosts
from pathways_jupyter.colocated.loss import require_session, wait_for_hosts
from pathways_jupyter.colocated.memory import MEMORY
from pathways_jupyter.colocated.ship import Shipped
from pathways_jupyter.colocated.value_reader import Reader
from pathways_jupyter.saved import on_devices

if TYPE_CHECKING:
    import jax

Make = Callable[[int, int], Iterable[Any]]

_AGAIN = "Make it again with colocated.iterator, from the batch that is needed next."


class BatchIterator(Iterator[Any]):
    """Global batches from a data-loading iterator that runs on every host of a sharding's devices.

    ::

        def load(host, count):
            for path in sorted(glob("/data/*.npy"))[host::count]:
                yield {"x": np.load(path)}

        for batch in colocated.iterator(load, sharding=jax.NamedSharding(mesh, jax.P("data"))):
            state = train_step(state, batch["x"])

    Args:
      make: Called on each host with its index among the hosts and their number; gives pytrees of NumPy arrays, the
        host's part of a batch along the first axis. Every batch has the first one's shapes; a smaller last one is left
        out.
      sharding: How a batch lies on the chips: its first axis over the hosts.
      ahead: How many batches are requested before they are needed, and again how many a host loads ahead.
      on_cpu: Leave batches on the hosts' CPU devices.
      unpickle: Trust the hosts to run code here: a batch may be any pytree; default: the session's setting. Otherwise
        it is one of containers, and of dataclasses and named tuples that this program has defined.

    Raises:
      HostError: `make`, or its first batch, raised on a host.
      ColocatedError: Hosts give batches of different shapes.
      CheckError: `make` cannot be sent.
    """

    def __init__(
        self, make: Make, *, sharding: Any, ahead: int = 2, on_cpu: bool = False, unpickle: bool | None = None
    ) -> None:
        import jax

        if not isinstance(sharding, jax.sharding.NamedSharding):
            raise CheckError(
                f"An iterator needs a NamedSharding, not a {type(sharding).__name__}.",
                hint='For example: jax.NamedSharding(jax.sharding.Mesh(jax.devices(), ("data",)), jax.P("data")).',
            )
        self._key = uuid.uuid4().hex[:12]
        self._ahead = ahead
        self._on_cpu = on_cpu
        on = [host for host in hosts() if sharding.device_set & {*host.chips, *host.cpus}]
        on_cpus = array_moves.on_cpus(sharding, on)
        self._channel = channel(on, on_cpus.device_set)
        self._request: list[jax.Array] = []
        # Each batch in a row: the hosts' answers, and its arrays.
        self._coming: deque[jax.Array] = deque()
        self._over = False
        self._failed = ""
        self._epoch = MEMORY.epoch
        data = preflight.pickled(make, names={getattr(make, "__name__", "make"): make})
        preflight.check(self._channel.hosts, (), data)
        on_hosts = [host.index for host in self._channel.hosts]
        self._release = weakref.finalize(self, MEMORY.release, self._key, on_hosts)
        self._release.atexit = False
        try:
            self._tree, self._step = self._open(data, source_of(make), on_cpus, unpickle=cell_run.trusts(unpickle))
            self._request.append(self._channel.request({"call": self._key, "object": self._key}, ()))
        except BaseException:
            # Iterators of hosts that have begun must not wait there until this error is forgotten.
            self.close()
            raise
        on_devices.ending[self] = (self._request, self._coming)

    def _open(
        self, data: bytes, source: dict[str, str], on_cpus: Any, *, unpickle: bool
    ) -> tuple[Any, Callable[..., Any]]:
        """Start the iterators on the hosts; return a batch's tree, and what fetches the next batch."""
        import jax

        head = {
            "op": "open",
            "call": self._key,
            "object": self._key,
            "ahead": self._ahead,
            **source,
            "live": True,
            "unpickle": unpickle,
        }
        answers = cell_run.ask(array_moves.Prepared(self._channel), head, [data])
        raise_failures(self._key, answers)
        batch = Reader("A batch", answers[0].parts, unpickle=unpickle)
        tree = jax.tree_util.tree_structure(batch.read(answers[0].head["result"]))
        targets = _targets(answers, on_cpus)
        specs = [jax.ShapeDtypeStruct(shape, dtype, sharding=where) for shape, dtype, where in targets]
        # JAX keeps the function, which must not keep this iterator.
        out_specs = [self._channel.row_spec(), *specs]
        step = self._channel.compiled(Shipped("next_batch", ROW_BYTES, targets), lambda request: out_specs)
        return tree, step

    def __next__(self) -> Any:
        """Return the next batch: a pytree as the hosts' iterators give it, of global arrays.

        Raises:
          HostError: An iterator raised on a host.
          ColocatedError: The hosts were lost, or the session has another proxy now; also each time after an error, as
            StopIteration would mean that all data were read.
          StopIteration: Some host's iterator ended; what others may still have is left.
        """
        import jax

        width = 1 + self._tree.num_leaves
        if self._failed:
            raise ColocatedError(f"The iterator ended with an error: {self._failed}", hint=_AGAIN)
        if self._over:
            raise StopIteration
        if self._epoch != MEMORY.epoch:
            gone = "The iterator is gone: the session has another proxy than when it was made."
            raise self._ended_by(LostError(gone, hint=_AGAIN))
        try:
            while len(self._coming) <= self._ahead * width:
                self._coming.extend(self._step(*self._request))
            row, *batch = itertools.islice(self._coming, width)
            answers = wait_for_hosts(self._channel.slices, lambda: self._channel.read(row))
            error = results.error_of([results.failure(answer.host, answer.head["error"]) for answer in answers])
            if error is not None:
                raise error
            if any(answer.head["end"] for answer in answers):
                raise StopIteration
        # Not after an Interrupt: the batch is still there.
        except StopIteration:
            self.close()
            raise
        except LostError as error:
            raise self._ended_by(LostError(str(error), hint=f"The iterator has ended with it. {_AGAIN}")) from error
        except ColocatedError as error:
            self._ended_by(error)
            raise
        except Exception as error:
            require_session()
            raise self._ended_by(explain(error)) from error
        for _ in range(width):
            self._coming.popleft()
        if not self._on_cpu:
            batch = [array_moves.to_chips("batch", array, self._channel.hosts) for array in batch]
        return jax.tree_util.tree_unflatten(self._tree, batch)

    def _ended_by(self, error: ColocatedError) -> ColocatedError:
        self._failed = str(error)
        self.close()
        return error

    def close(self) -> None:
        """End the iterators on the hosts."""
        self._over = True
        self._request.clear()
        self._coming.clear()
        on_devices.ending.pop(self, None)
        self._release()


iterator = BatchIterator


def _targets(answers: Sequence[Answer], sharding: Any) -> list[tuple[tuple[int, ...], Any, Any]]:
    """Return global shape, dtype and sharding of every array, from each host's part."""
    import jax
    import numpy as np

    first = answers[0].head["outputs"]
    if any(answer.head["outputs"] != first for answer in answers):
        listed = []
        for answer in answers:
            shapes = [f"{spec['dtype']}{spec['shape']}" for spec in answer.head["outputs"]]
            listed.append(f"{answer.host}: {', '.join(shapes)}")
        raise ColocatedError(
            f"Hosts give batches of different shapes: {'; '.join(listed)}.",
            hint="Let the iterator give arrays of the same shapes and types on every host.",
        )
    parts, local = _parts(answers, sharding)
    targets = []
    for spec in first:
        if not spec["shape"]:
            raise ColocatedError("A batch holds a number where an array was expected.", hint="Give it a batch axis.")
        rows, *rest = spec["shape"]
        if rows % local:
            raise ColocatedError(
                f"A host's {rows} rows do not divide among the {local} parts of the batch that lie on it.",
                hint="Choose a batch size that is a multiple of it.",
            )
        dtype = jax.dtypes.canonicalize_dtype(np.dtype(spec["dtype"]))
        targets.append(((rows // local * parts, *rest), dtype, sharding))
    return targets


def _parts(answers: Sequence[Answer], sharding: Any) -> tuple[int, int]:
    """Return into how many parts the first axis is cut, and how many of them lie on each host."""
    axes = sharding.spec[0] if len(sharding.spec) else None
    names = axes if isinstance(axes, tuple) else (axes,) if axes is not None else ()
    parts = math.prod(sharding.mesh.shape[name] for name in names)
    indices = sharding.devices_indices_map((parts,)) if parts > 1 else {}
    counts = {
        len({indices[cpu][0].start or 0 for cpu in answer.host.cpus if cpu in indices}) or 1 for answer in answers
    }
    if len(counts) > 1:
        raise ColocatedError("The batch's first axis does not lie evenly on the hosts.", hint="Use another mesh.")
    return parts, counts.pop()
