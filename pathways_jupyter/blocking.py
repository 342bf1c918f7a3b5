"""Asynchronous calls for callers that are not: command line, magics and scripts.

A notebook's thread already runs an event loop, which must not be entered again; so a call gets a thread with a loop of
its own. Interrupt cancels the call, waits until it has cleaned up, and then is raised as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

Value = TypeVar("Value")

_ROOM = 1024
"""Values that may wait for a slow reader."""


class _Call(threading.Thread):
    """One coroutine on a loop of its own."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__(name="pathways-call", daemon=True)
        self._coroutine = coroutine
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._begun = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = asyncio.run(self._main())
        except BaseException as error:
            self.error = error
        finally:
            self._begun.set()

    def cancel(self) -> None:
        """Ends the coroutine at its next await, and waits for it."""
        self._begun.wait()
        if self._task is not None:
            self.soon(self._task.cancel)
        self.join()

    def soon(self, function: Callable[[], Any]) -> None:
        """Has the loop call `function`, if it still runs."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)

    async def _main(self) -> Any:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        return await self._coroutine


def run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """The result of `coroutine`, or what it raises."""
    call = _Call(coroutine)
    call.start()
    try:
        call.join()
    except BaseException:
        call.cancel()
        raise
    if call.error is not None:
        raise call.error
    result: Value = call.value
    return result


def iterate(source: Callable[[], AsyncIterator[Value]]) -> Iterator[Value]:
    """What the iterator that `source` makes yields, as it comes; closing this closes that."""
    arrived: queue.SimpleQueue[tuple[Value] | None] = queue.SimpleQueue()
    # A flood of log lines waits for its reader at the other end of the wire, and not in memory.
    room = asyncio.Semaphore(_ROOM)

    async def pump() -> None:
        try:
            async for value in source():
                await room.acquire()
                arrived.put((value,))
        finally:
            arrived.put(None)

    call = _Call(pump())
    call.start()
    try:
        while (item := arrived.get()) is not None:
            yield item[0]
            call.soon(room.release)
    finally:
        call.cancel()
    if call.error is not None and not isinstance(call.error, asyncio.CancelledError):
        raise call.error
