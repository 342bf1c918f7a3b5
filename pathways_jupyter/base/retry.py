"""Try again, with longer and longer pauses.

The loops here decide by what an error says whether to go on, start anew after a success, and run in processes whose
start-up time counts. Retry libraries wrap a function and decide by the type of its exception, so each loop would need a
predicate and hooks of its own; what they all share is this: the pauses, their jitter and the deadline.
"""

from __future__ import annotations

import asyncio
import math
import random
import time


class Backoff:
    """Pauses between the attempts of one loop: ``async for`` yields the number of each attempt, from 0 on.

    The first attempt comes at once. Each pause is twice as long as the one before it, up to the longest, and varies by
    a quarter, so that clients that failed together do not return together. A cancelled pause ends the loop.

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
        self._attempts = 0

    @property
    def is_over(self) -> bool:
        """Whether no time is left for another attempt. Iterating goes on regardless: the loop raises its last error."""
        return time.monotonic() + self._pause > self._deadline

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self._pause = self._first

    async def wait(self) -> None:
        """Pause once."""
        pause, self._pause = self._pause, min(2 * self._pause, self._longest)
        await asyncio.sleep(pause * random.uniform(0.75, 1.25))

    def __aiter__(self) -> Backoff:
        return self

    async def __anext__(self) -> int:
        if self._attempts:
            await self.wait()
        self._attempts += 1
        return self._attempts - 1
