"""Run a command in a container."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from pathways_jupyter.base.errors import ClusterError, ConnectionLost
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.websocket import WebSocket

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3
_CHUNK_BYTES = 32 * 1024
_COMPLAINT_BYTES = 2000
MAX_OUTPUT_BYTES = 256 * 1024 * 1024
"""The most that a command may print while its output is collected."""


class Execution:
    """A running command; made by :func:`execute`.

    Attributes:
      complaint: The last bytes of its standard error; after its end, the reason why it could not run.
      exit_code: None before its end, or if it could not run.
      ended: Whether the API server has said that it ended.
    """

    def __init__(self, messages: WebSocket) -> None:
        self.complaint = b""
        self.exit_code: int | None = None
        self.ended = False
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
                self.ended = True
                try:
                    answer = json.loads(data)
                except ValueError:
                    answer = {"message": data.decode(errors="replace")}
                causes = (answer.get("details") or {}).get("causes") or ()
                codes = [int(each.get("message", 1)) for each in causes if each.get("reason") == "ExitCode"]
                if answer.get("status") == "Success" or codes:
                    self.exit_code = codes[0] if codes else 0
                else:
                    self.complaint = str(answer.get("message", "")).encode() or self.complaint or b"no reason was given"
                return


async def execute(
    client: Client, name: str, command: list[str], *, namespace: str, container: str = "", stdin: bool = True
) -> Execution:
    """Start a command in a container.

    Args:
      command: The program and its arguments; no shell is involved.
      stdin: Whether it gets what :meth:`Execution.write` sends; otherwise its standard input is empty.

    Raises:
      ApiError: There is no such pod or container, or running commands is forbidden.
      ClusterError: The server could not be reached.
    """
    query = [("command", part) for part in command]
    query += [("stdout", "true"), ("stderr", "true"), *([("stdin", "true")] if stdin else ())]
    query += [("container", container)] if container else []
    path = f"{PODS.item(namespace, name, 'exec')}?{urlencode(query, quote_via=quote)}"
    return Execution(await client.websocket(path, protocols=_PROTOCOLS))


@dataclass(frozen=True)
class Completed:
    """The result of a command; of its standard error, the last bytes."""

    exit_code: int
    stdout: bytes
    stderr: bytes


async def run(client: Client, name: str, command: list[str], *, namespace: str, container: str = "") -> Completed:
    """Run a command in a container, and collect its output.

    Raises:
      ApiError: There is no such pod or container, or running commands is forbidden.
      ClusterError: It could not be run, the server could not be reached, or the connection was lost while it ran.
    """
    running = await execute(client, name, command, namespace=namespace, container=container, stdin=False)
    output = bytearray()
    try:
        while data := await running.read():
            output += data
            if len(output) > MAX_OUTPUT_BYTES:
                raise ClusterError(
                    f"{command[0]} in pod {name} printed more than {MAX_OUTPUT_BYTES // 1024**2} MiB.",
                    hint="Redirect its output to a file.",
                )
    finally:
        running.close()
    # A connection that ends without a status looks like the end of the output.
    if not running.ended:
        raise ConnectionLost(
            f"{command[0]} in pod {name} ended without an exit status.",
            hint="The pod may be gone; see kubectl get pods.",
        )
    if running.exit_code is None:
        reason = running.complaint.decode(errors="replace")
        raise ClusterError(f"The command could not be run: {reason}", hint="Check that the container has that program.")
    return Completed(running.exit_code, bytes(output), running.complaint)
