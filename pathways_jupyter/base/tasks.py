"""Run coroutines: several at once, again with longer and longer pauses, and from synchronous code.

The last is for command line, magics and scripts. A notebook's main thread already runs an event loop, which is not
reentrant, so each call gets a thread with its own loop, or runs on that of a background thread. Interrupt cancels the
call, waits for its cleanup, and is then raised as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import random
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from pathways_jupyter.base import interrupts

Value = TypeVar("Value")

_ROOM = 1024
"""Most values that are queued for a slow reader."""
_LONGEST_DELAY_SECONDS = 60.0
"""Whatever a server says, a loop without a deadline asks it again after this time."""


@contextlib.asynccontextmanager
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a task group; on failure, raise the first error itself and not a group of errors.

    Unlike :func:`asyncio.gather`, nothing runs on after a failure: the other tasks are cancelled and awaited first.
    """
    first: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as running:
            yield running
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
    if first is not None:
        # Callers handle the errors of this package by type. Outside of the handler, so that the group is not the
        # error's context: IPython shows a full traceback for an error with a group anywhere in its chain.
        raise first


async def stop(*running: asyncio.Future[Any]) -> None:
    """Cancel tasks, and wait until they have ended; what they raise is dropped.

    To await a cancelled task itself raises CancelledError both when the task and when the caller was cancelled.
    """
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def first_done(
    *work: Coroutine[Any, Any, Any] | asyncio.Future[Any], seconds: float | None = None
) -> tuple[asyncio.Future[Any] | None, ...]:
    """Wait until one of `work` is done, for `seconds` at most; cancel the coroutines that are not, and wait for them.

    Futures belong to the caller, and are not cancelled.

    Returns:
      A future for each of `work`, None for those that were not done.
    """
    futures = [asyncio.ensure_future(each) for each in work]
    own = [future for future, each in zip(futures, work, strict=True) if future is not each]
    try:
        done, _ = await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # They must not go on beside what the caller does next.
        await stop(*own)
    return tuple(future if future in done else None for future in futures)


class Running(set[asyncio.Task[Any]]):
    """The tasks of one owner that have not ended; asyncio itself keeps only weak references."""

    def begin(self, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        """Run `work` as a task of these."""
        task = asyncio.get_running_loop().create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)
        return task


class Backoff:
    """Pauses between the attempts of one loop: ``for`` and ``async for`` yield the number of each attempt, from 0 on.

    The first attempt comes at once. Each pause is twice as long as the one before it, up to the longest, and varies by
    a quarter, so that clients that failed together do not return together. A cancelled pause ends the loop.

    The loops decide by what an error says whether to go on, start anew after a success, and run in processes whose
    start-up time counts. Retry libraries wrap a function and decide by the type of its exception.

    Args:
      first: The first pause, in seconds.
      longest: The longest pause, in seconds.
      seconds: Time from now on in which attempts begin; without end by default.
    """

    def __init__(self, first: float, longest: float, *, seconds: float = math.inf) -> None:
        self._first = first
        self._longest = longest
        self._deadline = time.monotonic() + seconds
        self._pause = first
        self._delay = 0.0
        self._attempts = 0

    @property
    def is_over(self) -> bool:
        """Return whether no time is left for another attempt. Iterating goes on: the loop raises its last error."""
        return time.monotonic() + self._delay + self._pause > self._deadline

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self._pause = self._first

    def delay(self, seconds: float) -> None:
        """Make the next pause longer by `seconds`, because a server has said how long to wait."""
        self._delay = min(seconds, _LONGEST_DELAY_SECONDS)

    async def wait(self) -> None:
        """Pause once."""
        await asyncio.sleep(self.next_pause())

    def sleep(self) -> None:
        """Pause this thread once; an Interrupt ends the pause, also where it is counted."""
        interrupts.InterruptibleEvent().wait(self.next_pause())

    def __aiter__(self) -> Backoff:
        return self

    async def __anext__(self) -> int:
        if self._attempts:
            await self.wait()
        self._attempts += 1
        return self._attempts - 1

    def __iter__(self) -> Backoff:
        return self

    def __next__(self) -> int:
        if self._attempts:
            self.sleep()
        self._attempts += 1
        return self._attempts - 1

    def next_pause(self) -> float:
        """Return the next pause in seconds, for a caller that waits for something else meanwhile."""
        pause, self._pause = self._pause, min(2 * self._pause, self._longest)
        # The delay is the same for all clients of an overloaded server: only the pause keeps them apart.
        delay, self._delay = self._delay, 0.0
        return delay + pause * random.uniform(0.75, 1.25)


class Background:
    """A thread with an event loop that lives as long as the process, for what must outlive a call: open connections."""

    def __init__(self) -> None:
        import uvloop

        # Sends the many small packets of a connection together: 1.5 s of CPU for 20 MB to 16 hosts, 2.1 s without.
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="pathways-background", daemon=True).start()


class Call:
    """One coroutine on an event loop: that of `background`, or one of its own in a daemon thread of its own.

    Attributes:
      value: What it has returned.
      error: What has ended it; a cancellation too.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], background: Background | None = None) -> None:
        self._coroutine = coroutine
        self._background = background
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._started = False
        self._cancelled = False
        self._ended = interrupts.InterruptibleEvent()
        self._wake: Callable[[], None] = lambda: None
        self.value: Any = None
        self.error: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Return whether the coroutine has ended."""
        return self._ended.is_set()

    def start(self, wake: Callable[[], None] = lambda: None) -> None:
        """Start the coroutine, and call `wake` at its end; not to be interrupted."""
        self._wake = wake
        if self._background is None:
            threading.Thread(target=self._run, name="pathways-call", daemon=True).start()
        else:
            asyncio.run_coroutine_threadsafe(self._main(), self._background.loop)
        self._started = True

    def cancel(self) -> None:
        """Cancel the coroutine; it still cleans up."""
        # The thread sets the task before it looks at this, so that one of the two sees the other.
        self._cancelled = True
        if self._task is not None:
            self.soon(self._task.cancel)

    def wait_for_end(self, seconds: float | None = None) -> None:
        """Wait for the end, for `seconds` at most, if it was started."""
        if self._started:
            self._ended.wait(seconds)

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
            # Not before the loop has cancelled what the coroutine has left.
            self._end()

    async def _main(self, *, ends: bool = True) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            if self._cancelled:
                self._coroutine.close()
                raise asyncio.CancelledError
            self.value = await self._coroutine
        except BaseException as error:
            self.error = error
        finally:
            if ends:
                self._end()

    def _end(self) -> None:
        self._ended.set()
        self._wake()


def run(coroutine: Coroutine[Any, Any, Value], background: Background | None = None) -> Value:
    """Run `coroutine`; return its result, or raise its exception.

    Raises:
      KeyboardInterrupt: Interrupted. The coroutine was cancelled and has cleaned up; after a second interrupt it may
        still be doing so.
    """
    call = Call(coroutine, background)
    try:
        # Interrupt arrives in this thread only, so pass it on.
        with interrupts.count_sigint() as waiting:
            call.start(waiting.wake)
            waiting.wait_for(lambda: call.ended or waiting.count)
            if not call.ended:
                call.cancel()
                waiting.wait_for(lambda: call.ended or waiting.count > 1)
    except BaseException:
        # Interrupted before the start, or by a signal that has another handler.
        call.cancel()
        call.wait_for_end()
        coroutine.close()
        raise
    if waiting.take():
        raise KeyboardInterrupt
    if call.error is not None:
        raise call.error
    result: Value = call.value
    return result


def abandonable(
    work: Callable[[], Value],
    *,
    name: str,
    seconds: float = math.inf,
    stop: Callable[[], object] | None = None,
    stop_seconds: float = 0.0,
    interrupted: Callable[[Value | None], BaseException] = lambda result: KeyboardInterrupt(),
    watch: Callable[[Callable[[BaseException], None]], AbstractContextManager[object]] = contextlib.nullcontext,
    meanwhile: Callable[[], object] = lambda: None,
) -> Value:
    """Run `work` in a daemon thread, as it may block where no interrupt reaches it; return its result.

    An interrupt runs `stop` in another thread, and the wait goes on for a little. A second one ends it at once.

    Args:
      name: The thread's name.
      seconds: Longest wait without an interrupt.
      stop: Ends the work early, and may block too; without it an interrupt ends the wait.
      stop_seconds: Longest wait for the work after an interrupt.
      interrupted: Returns the error to raise after an interrupt, for the work's result, or None if it has not ended.
      watch: Context manager over the wait. It gets a function that ends the wait with an error, from any thread.
      meanwhile: Called on this thread while `work` runs; it is short.

    Raises:
      KeyboardInterrupt: Interrupted, or what `interrupted` returns; the thread goes on by itself.
      TimeoutError: It has not ended within `seconds`; the same.
      Exception: The error that `work` raised, or that ended the wait.
    """
    # Other threads append to these lists, and then wake the main thread.
    results: list[Value] = []
    errors: list[BaseException] = []
    failures: list[BaseException] = []
    with interrupts.count_sigint() as waiting:

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:
                # Also what is no Exception, such as a panic in an extension module: nothing else ends the wait.
                errors.append(error)
            waiting.wake()

        def fail(error: BaseException) -> None:
            failures.append(error)
            waiting.wake()

        with watch(fail):
            threading.Thread(target=run, name=name, daemon=True).start()
            meanwhile()
            waiting.wait_for(lambda: results or errors or failures or waiting.count, seconds)
            if waiting.count and stop is not None:
                threading.Thread(target=stop, name=f"{name}-stop", daemon=True).start()
                waiting.wait_for(lambda: results or errors or failures or waiting.count > 1, stop_seconds)
    # A result that arrived together with a failure is complete, so it counts.
    if failures and not results:
        raise failures[0]
    if waiting.take():
        raise interrupted(results[0] if results else None)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]


@contextlib.contextmanager
def iterate(
    source: Callable[[], AsyncIterator[Value]], background: Background | None = None
) -> Iterator[Iterator[Value]]:
    """Context manager over an iterator of the values of the asynchronous iterator from `source`.

    In the block interrupts are counted, and raised where the next value is waited for, or at the block's end: what it
    does with a value, such as printing it, is never cut. The end cancels the source, and waits for its clean-up.

    Raises:
      KeyboardInterrupt: Interrupted. The source has cleaned up; after a second interrupt it may still be doing so.
    """
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

    def values(call: Call) -> Iterator[Value]:
        while (item := interrupts.next_of(arrived)) is not None:
            yield item[0]
            call.soon(room.release)
        call.wait_for_end()
        if call.error is not None:
            raise call.error

    with interrupts.defer_sigint():
        call = Call(pump(), background)
        try:
            call.start()
            yield values(call)
        finally:
            # In a block of its own: the interrupt that led here does not end the wait for the clean-up.
            with interrupts.count_sigint(cleanup=True):
                call.cancel()
                call.wait_for_end()
