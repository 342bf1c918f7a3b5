"""A data-loading iterator on this host: the user's own, run ahead in a thread, a batch at a time for JAX."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from . import failures, outputs

_END = object()
_LOOK_SECONDS = 0.5
"""Interval at which the reader and the thread notice that an iterator has been closed."""


class Prefetcher:
    """Runs an iterator ahead of its reader.

    Args:
      make: Makes the iterator, which gives pytrees of NumPy arrays, all of the same shapes.
      ahead: How many batches may wait.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], ahead: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(max(1, ahead))
        self._closed = threading.Event()
        self._first: Any = None
        threading.Thread(target=self._work, args=(make,), name="colocated-prefetch", daemon=True).start()

    def first(self) -> Any:
        """Return the first batch, which :meth:`next` returns again.

        Raises:
          StopIteration: There is none.
        """
        self._first = self.next()
        return self._first

    def next(self) -> Any:
        """Return the next batch.

        Raises:
          StopIteration: There is none any more, or the iterator was closed.
        """
        if self._first is not None:
            batch, self._first = self._first, None
            return batch
        while True:
            with contextlib.suppress(queue.Empty):
                batch = self._queue.get(timeout=_LOOK_SECONDS)
                break
            if self._closed.is_set():
                # Batches are requested ahead: nothing else would end the request that waits for this one.
                raise StopIteration
        if batch is _END or isinstance(batch, BaseException):
            # Put back, so that later calls get the same end or error.
            self._queue.put(batch)
            if batch is _END:
                raise StopIteration
            raise batch  # type: ignore[misc]
        return batch

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        while not self._queue.empty():
            self._queue.get_nowait()

    def _work(self, make: Callable[[], Iterable[Any]]) -> None:
        last: Any = _END
        try:
            for batch in make():
                if not self._put(batch):
                    return
        except BaseException as error:
            last = error
        self._put(last)

    def _put(self, batch: Any) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(batch, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return True
        return False


def next_batch(
    prefetcher: Prefetcher, targets: list[tuple[tuple[int, ...], Any, Any]]
) -> tuple[dict[str, Any], list[jax.Array]]:
    """Return the next batch as this host's part of global arrays.

    Args:
      prefetcher: Where from.
      targets: Global shape, dtype and sharding of each array.

    Returns:
      What happened, as JSON values, and the arrays; zeros when there is no batch.
    """
    state: dict[str, Any] = {"end": False, "error": None}
    batch = []
    try:
        for leaf, (shape, dtype, sharding) in zip(jax.tree_util.tree_leaves(prefetcher.next()), targets, strict=True):
            part, rows = np.asarray(leaf), outputs.rows(shape, sharding)
            if part.shape[1:] == shape[1:] and part.shape[0] < rows:
                # The last batch of a pass is often smaller; compiled programs take none but whole ones.
                raise StopIteration
            if part.shape != (rows, *shape[1:]):
                raise ValueError(f"A batch has shape {list(part.shape)}, the first one had {[rows, *shape[1:]]}.")
            batch.append(outputs.assemble(part, shape, dtype, sharding))
        return state, batch
    except StopIteration:
        state["end"] = True
    except BaseException as error:
        state["error"] = failures.describe(error, "")
    return state, [
        outputs.assemble(np.zeros((outputs.rows(shape, sharding), *shape[1:]), dtype), shape, dtype, sharding)
        for shape, dtype, sharding in targets
    ]
