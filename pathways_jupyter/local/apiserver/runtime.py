"""What the API server asks of whoever runs the pods: their logs, a program beside them, a connection into them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol


class ProcessInput(Protocol):
    """The writing end of a program's standard input; an ``asyncio.StreamWriter`` is one."""

    def write(self, data: bytes) -> None:
        """Buffers `data`."""

    async def drain(self) -> None:
        """Waits until the program has taken enough of it."""

    def close(self) -> None:
        """Tells the program that no more will come."""


class ExecProcess(Protocol):
    """A program that runs beside a container's own."""

    @property
    def stdin(self) -> ProcessInput | None:
        """None when it was started without standard input."""

    @property
    def stdout(self) -> asyncio.StreamReader:
        """What it prints; with a terminal, its standard error too."""

    @property
    def stderr(self) -> asyncio.StreamReader | None:
        """None when it has a terminal."""

    async def wait(self) -> int:
        """Waits for its end, and gives its exit code; a signal N counts as 128 + N."""

    def resize(self, width: int, height: int) -> None:
        """Tells its terminal, where it has one, how many columns and rows the viewer has."""

    def kill(self) -> None:
        """Ends it at once; does nothing when it has ended."""


class PodRuntime(Protocol):
    """Whoever runs the pods. Pods are named by uid: a name may be used again."""

    def logs(
        self,
        uid: str,
        container: str,
        *,
        follow: bool,
        tail: int | None,
        previous: bool,
        since: float | None,
        timestamps: bool,
    ) -> AsyncIterator[bytes]:
        """A container's output, in pieces that need not be lines.

        Args:
          follow: Go on until the container ends.
          tail: Begin that many lines before the end; None for all of it.
          previous: The output of the instance before this one.
          since: Begin with what was written at this time (seconds since the epoch) or later.
          timestamps: Begin every line with the RFC 3339 time at which it was written.

        Raises:
          LookupError: There is no such pod, container or previous instance.
        """

    async def exec(self, uid: str, container: str, command: list[str], *, stdin: bool, tty: bool) -> ExecProcess:
        """Starts `command` beside the container's own program.

        Raises:
          LookupError: There is no such pod or container, or it does not run.
          OSError: The command cannot be started.
        """

    async def connect(self, uid: str, port: int, protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        """Opens a connection to a port inside the pod, and gives it to what `protocol` makes.

        Raises:
          LookupError: There is no such pod, or it does not run.
          OSError: Nothing listens there.
        """

    async def dial(self, uid: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Like :meth:`connect`, with streams.

        Raises:
          LookupError: There is no such pod, or it does not run.
          OSError: Nothing listens there.
        """
