"""Run coroutines from synchronous code: command line, magics and scripts.

A notebook's main thread already runs an event loop, which is not reentrant, so each call gets a thread with its own
loop. Interrupt cancels the call, waits for its cleanup, and is then raised as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from typing import Any, TypeVar

from pathways_jupyter import interruptible

Value = TypeVar("Value")

_ROOM = 1024
"""Most values that are queued for a slow reader."""


class _Call(threading.Thread):
    """A thread that runs one coroutine on its own event loop."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__(name="pathways-call", daemon=True)
        self._coroutine = coroutine
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._begun = interruptible.Event()
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
        """Cancel the coroutine, and wait until it has cleaned up."""
        # Before the thread has begun there is no task to cancel yet.
        self._begun.wait()
        if self._task is not None:
            self.soon(self._task.cancel)
        self.join()

    def soon(self, function: Callable[[], Any]) -> None:
        """Call `function` in the loop's thread; no-op if the loop has ended."""
        if self._loop is not None:
            # RuntimeError: the loop was closed between the coroutine's end and this call.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)

    async def _main(self) -> Any:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        return await self._coroutine


def run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run `coroutine`; return its result, or raise its exception."""
    call = _Call(coroutine)
    call.start()
    try:
        call.join()
    except BaseException:
        # Interrupt arrives in this thread only, so pass it on.
        call.cancel()
        raise
    if call.error is not None:
        raise call.error
    result: Value = call.value
    return result


def iterate(source: Callable[[], AsyncIterator[Value]]) -> Generator[Value, None, None]:
    """Yield the values of the asynchronous iterator from `source`; closing this generator cancels it."""
    arrived: queue.SimpleQueue[tuple[Value] | None] = queue.SimpleQueue()
    # Back-pressure: a flood of log lines waits in the network for a slow reader, not in memory.
    room = asyncio.Semaphore(_ROOM)

    async def pump() -> None:
        values = source()
        try:
            async for value in values:
                await room.acquire()
                arrived.put((value,))
        finally:
            # Not left to the garbage collector: its clean-up is part of this call.
            if isinstance(values, AsyncGenerator):
                await values.aclose()
            # Wakes the reader at the end, also when the source raised.
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
