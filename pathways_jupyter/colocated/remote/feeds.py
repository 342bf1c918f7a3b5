"""A data-loading iterator on this host: the user's own, run ahead in a thread, a batch at a time for JAX."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from . import failures, kept, returned

_END = object()


class Feed(kept.Closing):
    """Runs an iterator ahead of its reader.

    Args:
      batches: Gives pytrees of NumPy arrays, all of the same shapes.
      ahead: How many batches may wait.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], ahead: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(max(1, ahead))
        self._closed = threading.Event()
        self._first: Any = None
        threading.Thread(target=self._work, args=(make,), name="colocated-feed", daemon=True).start()

    def first(self) -> Any:
        """The first batch, which :meth:`next` gives again.

        Raises:
          StopIteration: There is none.
        """
        self._first = self.next()
        return self._first

    def next(self) -> Any:
        """The next batch.

        Raises:
          StopIteration: There is none any more.
        """
        if self._first is not None:
            found, self._first = self._first, None
            return found
        found = self._queue.get()
        if found is _END or isinstance(found, BaseException):
            # Put back, so that later calls get the same end or error.
            self._queue.put(found)
            if found is _END:
                raise StopIteration
            raise found  # type: ignore[misc]
        return found

    def close(self) -> None:
        """Ends the thread."""
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
                self._queue.put(batch, timeout=0.5)
            except queue.Full:
                continue
            return True
        return False


def describe(batch: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The tree of a batch, and shape and dtype of each of its arrays."""
    leaves, tree = jax.tree_util.tree_flatten(batch)
    found = [np.asarray(leaf) for leaf in leaves]
    return tree, [{"shape": list(leaf.shape), "dtype": str(leaf.dtype)} for leaf in found]


def step(feed: Feed, targets: list[tuple[tuple[int, ...], Any, Any]]) -> tuple[dict[str, Any], list[jax.Array]]:
    """The next batch as this host's part of global arrays.

    Args:
      feed: Where from.
      targets: Global shape, dtype and sharding of each array.

    Returns:
      What happened, as JSON values, and the arrays; zeros when there is no batch.
    """
    state: dict[str, Any] = {"end": False, "error": None}
    try:
        leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(feed.next())]
        return state, [
            returned.assemble(_fitting(leaf, shape, sharding), shape, dtype, sharding)
            for leaf, (shape, dtype, sharding) in zip(leaves, targets, strict=True)
        ]
    except StopIteration:
        state["end"] = True
    except BaseException as error:
        state["error"] = failures.describe(error, "")
    return state, [_zeros(*target) for target in targets]


def _fitting(local: Any, shape: tuple[int, ...], sharding: Any) -> Any:
    wanted = returned.rows(shape, sharding)
    if local.shape != (wanted, *shape[1:]):
        if local.shape[1:] == shape[1:] and local.shape[0] < wanted:
            # The last batch of a pass is often smaller; compiled programs take none but whole ones.
            raise StopIteration
        raise ValueError(f"A batch has shape {list(local.shape)}, the first one had {[wanted, *shape[1:]]}.")
    return local


def _zeros(shape: tuple[int, ...], dtype: Any, sharding: Any) -> jax.Array:
    return returned.assemble(np.zeros((returned.rows(shape, sharding), *shape[1:]), dtype), shape, dtype, sharding)
