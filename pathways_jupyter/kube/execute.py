"""A command in a container, with bytes in and out while it runs; :mod:`.pods` has one that collects its output."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from urllib.parse import urlencode

from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.websocket import WebSocket

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3
_CHUNK_BYTES = 32 * 1024
_COMPLAINT_BYTES = 2000


class Execution:
    """A running command; made by :func:`execute`.

    Attributes:
      complaint: The last bytes of its standard error; after its end, the reason why it could not run.
    """

    def __init__(self, messages: WebSocket) -> None:
        self.complaint = b""
        self._messages = messages
        self._received = self._read()

    async def write(self, data: bytes) -> None:
        """Send `data` to its standard input.

        Raises:
          ConnectionLost: The connection has ended.
        """
        for start in range(0, len(data), _CHUNK_BYTES):
            await self._messages.send(bytes([_STDIN]) + data[start : start + _CHUNK_BYTES])

    async def read(self) -> bytes:
        """Return the next bytes of its standard output; empty at its end.

        Raises:
          ClusterError: The connection was lost.
        """
        return await anext(self._received, b"")

    def close(self) -> None:
        """Close the connection, which closes the command's standard input."""
        self._messages.close()

    async def _read(self) -> AsyncIterator[bytes]:
        async for message in self._messages:
            channel, data = message[0] if message else -1, message[1:]
            if channel == _STDOUT and data:
                yield data
            elif channel == _STDERR:
                self.complaint = (self.complaint + data)[-_COMPLAINT_BYTES:]
            elif channel == _STATUS:
                self._explain(data)
                return

    def _explain(self, status: bytes) -> None:
        try:
            answer = json.loads(status)
        except ValueError:
            answer = {}
        causes = (answer.get("details") or {}).get("causes") or ()
        if answer.get("status") != "Success" and not any(each.get("reason") == "ExitCode" for each in causes):
            self.complaint = str(answer.get("message", "")).encode() or self.complaint


async def execute(client: Client, name: str, command: list[str], *, namespace: str, container: str = "") -> Execution:
    """Start a command in a container.

    Args:
      command: The program and its arguments; no shell is involved.

    Raises:
      ApiError: There is no such pod or container, or running commands is forbidden.
      ClusterError: The server could not be reached.
    """
    query = [("command", part) for part in command]
    query += [("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    query += [("container", container)] if container else []
    path = f"{PODS.item(namespace, name, 'exec')}?{urlencode(query)}"
    return Execution(await client.websocket(path, protocols=_PROTOCOLS))
