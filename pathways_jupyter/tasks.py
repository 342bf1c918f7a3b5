"""Run several things at once, of which the first failure ends all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a task group; on failure, raise the first error itself and not a group of errors.

    Unlike :func:`asyncio.gather`, nothing runs on after a failure: the other tasks are cancelled and awaited first.
    """
    try:
        async with asyncio.TaskGroup() as running:
            yield running
    except BaseExceptionGroup as failures:
        # Callers handle the errors of this package by type. With the cause of the error, which a plain `from` would
        # replace.
        error = failures.exceptions[0]
        raise error from error.__cause__
