"""Queues for work that may block: one per list of devices, each with threads of its own and in order.

XLA accepts a limited number of computations per device and blocks the caller beyond it, and waiting for a result blocks
as well. Both happen on a queue's own threads, so that a full or slow device only delays work on the same devices. A
launch on an idle queue runs on the caller's thread, which keeps small operations fast.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

_log = logging.getLogger(__name__)

_IN_FLIGHT = 8
"""Unfinished computations after which a queue stops launching on the caller's thread; XLA itself blocks at 32 a device,
and a device may be in several queues."""


class Waitable(Protocol):
    """A JAX object that can be waited for."""

    def block_until_ready(self) -> object:
        """Block until it is ready; raise if it failed."""


class JobQueue:
    """A queue of jobs that one thread runs in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending = 0
        self._started = False

    @property
    def busy(self) -> bool:
        """Return whether a job waits or runs."""
        return self._pending > 0

    def submit(self, job: Callable[[], None]) -> None:
        """Queue `job`; an exception it raises is only logged."""
        with self._lock:
            self._pending += 1
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception:
                _log.exception("A job of %s failed", self._name)
            finally:
                # Dropped before waiting for the next job, as it may hold the last reference to a large array.
                del job
                with self._lock:
                    self._pending -= 1


class DeviceQueue:
    """Launches and waits for one list of devices."""

    def __init__(self, devices: Sequence[int]) -> None:
        name = ",".join(map(str, devices))
        self._launches = JobQueue(f"launch {name}")
        self._waits = JobQueue(f"wait {name}")
        self._room = threading.Semaphore(_IN_FLIGHT)

    def launch(self, job: Callable[[], Waitable | None]) -> None:
        """Run `job` after all earlier launches; on the caller's thread if the queue is idle.

        Args:
          job: Starts a computation, and returns an object to wait for unless it is complete.
        """
        # `busy` is checked first: a job that overtook a queued one would break the order.
        if not self._launches.busy and self._room.acquire(blocking=False):
            self._start(job)
        else:
            self.launch_elsewhere(job)

    def launch_elsewhere(self, job: Callable[[], Waitable | None]) -> None:
        """Like :meth:`launch`, but never on the caller's thread, for a job that is slow even to start."""

        def start() -> None:
            self._room.acquire()
            self._start(job)

        self._launches.submit(start)

    def aside(self, job: Callable[[], None]) -> None:
        """Run a slow `job` after the current waits; never on the caller's thread."""
        self._waits.submit(job)

    def wait(self, value: Waitable, done: Callable[[BaseException | None], None]) -> None:
        """Call `done` when `value` is ready, with the error if it failed."""
        self._waits.submit(lambda: done(outcome(value)))

    def _start(self, job: Callable[[], Waitable | None]) -> None:
        running: Waitable | None = None
        try:
            running = job()
        finally:
            # Room is taken until the computation is over, not only launched; also given back when the job raised.
            if running is None:
                self._room.release()
            else:
                self.wait(running, lambda _: self._room.release())


class DeviceQueues:
    """All queues, created on first use."""

    def __init__(self) -> None:
        self._queues: dict[tuple[int, ...], DeviceQueue] = {}

    def of(self, device_ids: Sequence[int]) -> DeviceQueue:
        """Return the queue of this list of devices."""
        key = tuple(device_ids)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues.setdefault(key, DeviceQueue(key))
        return queue


def outcome(value: Waitable) -> BaseException | None:
    """Wait for `value`, and return the error that it failed with, if any."""
    try:
        value.block_until_ready()
    except Exception as error:
        return error
    return None
