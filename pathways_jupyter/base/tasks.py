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
