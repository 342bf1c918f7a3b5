"""Run coroutines from synchronous code: command line, magics and scripts.

A notebook's main thread already runs an event loop, which is not reentrant, so each call gets a thread with its own
loop, or runs on that of a background thread. Interrupt cancels the call, waits for its cleanup, and is then raised as
usual.
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


class Background:
    """A thread with an event loop that lives as long as the process, for what must outlive a call: open connections."""

    def __init__(self) -> None:
        import uvloop

        # Sends the many small packets of a connection together: 1.5 s of CPU for 20 MB to 16 hosts, 2.1 s without.
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="pathways-background", daemon=True).start()


class _Call:
    """One coroutine on an event loop: that of `background`, or one of its own in a thread of its own."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], background: Background | None) -> None:
        self._coroutine = coroutine
        self._background = background
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._begun, self._ended = interruptible.Event(), interruptible.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the coroutine."""
        if self._background is None:
            threading.Thread(target=self._run, name="pathways-call", daemon=True).start()
        else:
            asyncio.run_coroutine_threadsafe(self._main(), self._background.loop)

    def join(self) -> None:
        """Wait for the end."""
        self._ended.wait()

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

    def _run(self) -> None:
        try:
            asyncio.run(self._main(ends=False))
        except BaseException as error:
            self.error = self.error or error
        finally:
            self._begun.set()
            # Not before the loop has cancelled what the coroutine has left.
            self._ended.set()

    async def _main(self, *, ends: bool = True) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        try:
            self.value = await self._coroutine
        except BaseException as error:
            self.error = error
        finally:
            if ends:
                self._ended.set()


def run(coroutine: Coroutine[Any, Any, Value], background: Background | None = None) -> Value:
    """Run `coroutine`; return its result, or raise its exception."""
    call = _Call(coroutine, background)
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


def iterate(
    source: Callable[[], AsyncIterator[Value]], background: Background | None = None
) -> Generator[Value, None, None]:
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

    call = _Call(pump(), background)
    call.start()
    try:
        while (item := arrived.get()) is not None:
            yield item[0]
            call.soon(room.release)
    finally:
        call.cancel()
    if call.error is not None and not isinstance(call.error, asyncio.CancelledError):
        raise call.error
