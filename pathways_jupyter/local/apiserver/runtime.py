"""Interface between the API server and the kubelet: logs of pods, programs and connections in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol


class ExecProcess(Protocol):
    """A program that exec has started in a container."""

    stdin: asyncio.StreamWriter | None
    """None when it was started without standard input."""
    stdout: asyncio.StreamReader
    """Its output; with a terminal, its standard error too."""
    stderr: asyncio.StreamReader | None
    """None when it has a terminal."""

    async def wait(self) -> int:
        """Wait for its end, and return its exit code, 128 + N for signal N."""

    def resize(self, width: int, height: int) -> None:
        """Set the columns and rows of its terminal; no-op without one."""

    def kill(self) -> None:
        """End it at once; no-op when it has ended."""


class PodRuntime(Protocol):
    """Runs the pods. Pods are identified by uid, since names are reused."""

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
        """Return a container's output, in pieces that need not be lines.

        Args:
          follow: Continue until the container ends.
          tail: Start that many lines before the end; None for all of it.
          previous: The output of the instance before this one.
          since: Start with what was written at this time (seconds since the epoch) or later.
          timestamps: Prefix every line with the RFC 3339 time at which it was written.

        Raises:
          LookupError: There is no such pod, container or previous instance.
        """

    async def exec(self, uid: str, container: str, command: list[str], *, stdin: bool, tty: bool) -> ExecProcess:
        """Start `command` beside the container's own program.

        Raises:
          LookupError: There is no such pod or container, or it does not run.
          OSError: The command cannot be started.
        """

    async def dial(self, uid: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port inside the pod.

        Raises:
          LookupError: There is no such pod, or it does not run.
          OSError: Nothing listens there.
        """
