"""Arrays as a session knows them: they exist from their request on, before their values do.

:func:`launch` is how every operation on arrays runs. It starts when its inputs exist, and never before an operation
that was asked for earlier and still has to read what this one consumes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pathways_jupyter.local.pathways.ifrt import promises, statuses
from pathways_jupyter.local.pathways.ifrt.array_values import ArraySpec, Strings
from pathways_jupyter.local.pathways.ifrt.device_queues import DeviceQueue, Waitable, outcome
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.statuses import IfrtStatusError

Work = Callable[[list[Any]], tuple[Sequence[Any], Waitable | None]]
"""Computes the outputs' values from the inputs'; returns an object to wait for if it is still running; may raise."""

Start = Callable[[Callable[[], Waitable | None]], object]
"""Runs a job somewhere: here, on a queue, on a thread."""


def on_thread(name: str) -> Start:
    """Run a job on a thread of its own, because it waits for something else than devices."""
    return lambda job: threading.Thread(target=job, name=name, daemon=True).start()


_DELETED = promises.failed(statuses.invalid("Array has been deleted."))


class Array:
    """One array of one session.

    Attributes:
      spec: None for an array that could not even be described, because the request that made it was wrong.
      promise: The value, or the error in place of it.
    """

    __slots__ = ("_ready", "deleted", "promise", "readers", "spec")

    def __init__(self, spec: ArraySpec | None) -> None:
        self.spec = spec
        self.promise = Promise()
        self.deleted = False
        self.readers: list[Promise] = []
        self._ready: Promise | None = None

    def ready(self, queue_of: Callable[[Sequence[int]], DeviceQueue]) -> Promise:
        """Return a promise settled with the value once its computation is over, not only started."""
        if self.deleted:
            return _DELETED
        if self._ready is None:
            self._ready = ready = Promise()
            promise, spec = self.promise, self.spec

            def settle_when_over() -> None:
                if promise.error is not None:
                    ready.fail(promise.error)
                    return
                value = promise.get()
                if isinstance(value, Strings) or spec is None:
                    ready.settle(value)
                    return

                def done(error: BaseException | None) -> None:
                    if error is None:
                        ready.settle(value)
                    else:
                        ready.fail(statuses.of(error))

                try:
                    over = value.is_ready()
                except RuntimeError:
                    # Deleted: its memory went into another array. Waiting for it will say so.
                    over = True
                if over:
                    # Returns at once, and raises what the computation failed with.
                    done(outcome(value))
                else:
                    queue_of(spec.sharding.device_ids).wait(value, done)

            promise.then(settle_when_over)
        return self._ready

    def delete(self) -> None:
        """Drop the value; operations that were requested before still have it."""
        self.deleted = True
        self.promise = _DELETED
        self._ready = None

    def lose(self, error: IfrtStatusError) -> None:
        """Put `error` in place of the value, also for those who wait for it."""
        if not self.deleted:
            self.promise.lose(error)
            if self._ready is not None:
                self._ready.lose(error)


def launch(
    work: Work,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    consumed: Sequence[Array] = (),
    after: Sequence[Promise] = (),
    start: Start = lambda job: job(),
) -> Promise:
    """Have `work` run as soon as it can; what goes wrong becomes the outputs' error.

    Args:
      work: Gets the values of `inputs`, in that order, and returns as many values as there are outputs.
      consumed: Those of `inputs` that are gone afterwards, because their memory is reused.
      after: What else must be settled before.
      start: Where to run it once it can run.

    Returns:
      A promise that is settled when `work` is over.
    """
    # The promises, not the arrays: an array that is deleted from here on changes nothing for this operation.
    sources = [array.promise for array in inputs]
    targets = [array.promise for array in outputs]
    blockers = [promise for promise in (*sources, *after) if not promise.settled]
    for array in consumed:
        blockers.extend(reader for reader in array.readers if not reader.settled)
        array.delete()
    done = Promise()

    def run() -> Waitable | None:
        waitable = None
        try:
            results, waitable = work([source.get() for source in sources])
            for target, result in zip(targets, results, strict=True):
                target.settle(result)
        except Exception as error:
            status = statuses.of(error)
            for target in targets:
                target.fail(status)
            done.fail(status)
        else:
            done.settle(None)
        return waitable

    if blockers:
        promises.when_all(blockers, lambda: start(run))
    else:
        start(run)
    if not done.settled:
        for array in inputs:
            array.readers = [reader for reader in array.readers if not reader.settled]
            array.readers.append(done)
    return done
