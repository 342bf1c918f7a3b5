"""Run several things at once, of which the first failure, or the first that is done, ends all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


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
        for task in own:
            task.cancel()
        # Wait for the cancelled ones: they must not go on beside what the caller does next.
        await asyncio.gather(*own, return_exceptions=True)
    return tuple(future if future in done else None for future in futures)
