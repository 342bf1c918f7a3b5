"""The lines that a program of this package says."""

import asyncio

from quiet_cluster import DEADLINE


class Log(list[str]):
    """Lines as they come."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def write(self, line: str) -> None:
        self.append(line)
        self._more.set()

    async def until(self, text: str) -> None:
        """Wait for a line with that text."""
        async with asyncio.timeout(DEADLINE):
            while not any(text in line for line in self):
                self._more.clear()
                await self._more.wait()
