"""Read the log of a pod, and run a command in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.messages import Messages
from pathways_jupyter.kube.objects import PODS, Object, find
from pathways_jupyter.kube.problems import ConnectionLost

LONGEST_LINE = 1024 * 1024
"""A longer line of a log is handed on in pieces."""
MAX_OUTPUT_BYTES = 256 * 1024 * 1024

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_STDIN_CHUNK = 32 * 1024
_PAUSE_SECONDS = 0.2


async def logs(
    client: Client,
    name: str,
    *,
    namespace: str,
    container: str = "",
    follow: bool = False,
    tail: int | None = None,
    since_seconds: int | None = None,
) -> AsyncGenerator[str, None]:
    """Yields the lines of a container's log, without their ends.

    A followed log goes on where it stopped when the connection drops or the API server restarts, with no line lost or
    told twice; it ends when the container does, or when the pod is gone.

    Args:
      tail: Only the last so many lines.
      since_seconds: Only lines of the last so many seconds.

    Raises:
      ApiError: There is no such pod or container, or it has not started yet (400).
      ClusterError: The server could not be reached.
    """
    query = {"follow": "true", "timestamps": "true"} if follow else {}
    given = {"container": container, "tailLines": tail, "sinceSeconds": since_seconds}
    query |= {key: str(value) for key, value in given.items() if value not in {None, ""}}
    path = PODS.item(namespace, name, "log")
    if not follow:
        async with client.stream(path, query=query) as chunks:
            async for line in _lines(chunks):
                yield line
        return
    place = _Place()
    identity = ""
    while True:
        try:
            async with client.stream(path, query=query) as chunks:
                identity = identity or await _running(client, namespace, name, container)
                async for stamped in _lines(chunks):
                    fresh = place.take(stamped)
                    if fresh is not None:
                        yield fresh
        except ApiError as error:
            if error.status == 404 and place.started:
                return
            raise
        except ConnectionLost:
            pass
        # A server that shuts down ends its streams as properly as a container that ends.
        if not identity or await _running(client, namespace, name, container) != identity:
            return
        await asyncio.sleep(_PAUSE_SECONDS)
        query.pop("tailLines", None)
        query.pop("sinceSeconds", None)
        if place.since:
            query["sinceTime"] = place.since
        place.rewind()


@dataclass(frozen=True)
class Completed:
    """How a command ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes


async def run(
    client: Client, name: str, command: list[str], *, namespace: str, container: str = "", stdin: bytes | None = None
) -> Completed:
    """Runs a command in a container and collects what it says.

    Args:
      command: The program and its arguments; no shell is involved.
      stdin: What the program reads before it sees the end; without it there is nothing to read from.

    Raises:
      ApiError: There is no such pod or container, or running commands is forbidden.
      ClusterError: The server could not be reached, or the connection was lost while the command ran.
    """
    streams = {_STDOUT: bytearray(), _STDERR: bytearray()}
    query = [("command", part) for part in command]
    query += [("stdout", "true"), ("stderr", "true")]
    query += [("stdin", "true")] if stdin is not None else []
    query += [("container", container)] if container else []
    path = f"{PODS.item(namespace, name, 'exec')}?{urlencode(query)}"
    messages = await client.websocket(path, protocols=_PROTOCOLS)
    feeding = asyncio.create_task(_feed(messages, stdin))
    try:
        async for message in messages:
            channel = message[0] if message else -1
            if channel == _STATUS:
                return Completed(_exit_code(message[1:]), bytes(streams[_STDOUT]), bytes(streams[_STDERR]))
            if channel in streams:
                streams[channel] += message[1:]
                if len(streams[channel]) > MAX_OUTPUT_BYTES:
                    raise ClusterError(f"{command[0]} in pod {name} printed too much.", hint="Let it write to a file.")
    finally:
        feeding.cancel()
        messages.close()
    raise ConnectionLost(
        f"{command[0]} in pod {name} ended without saying how.", hint="The pod may be gone; see kubectl get pods."
    )


async def _feed(messages: Messages, stdin: bytes | None) -> None:
    if stdin is None:
        return
    # A connection that breaks is noticed and reported where the answer is read.
    with contextlib.suppress(ClusterError):
        for start in range(0, len(stdin), _STDIN_CHUNK):
            await messages.send(bytes([_STDIN]), stdin[start : start + _STDIN_CHUNK])
        await messages.send(bytes([_CLOSE, _STDIN]))


def _exit_code(status: bytes) -> int:
    try:
        answer = json.loads(status)
    except ValueError:
        answer = {"message": status.decode(errors="replace")}
    if answer.get("status") == "Success":
        return 0
    for cause in (answer.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause.get("message", 1))
    raise ClusterError(
        f"The command could not be run: {answer.get('message', 'no reason was given')}",
        hint="Check that the container has that program.",
    )


async def _running(client: Client, namespace: str, name: str, container: str) -> str:
    """What tells one life of a container from the next; empty when it does not run."""
    pod = await find(client, PODS, name, namespace=namespace)
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return ""
    status = _container_status(pod, container)
    if "running" not in (status.get("state") or {}):
        return ""
    return f"{pod['metadata'].get('uid')}/{status.get('containerID')}/{status.get('restartCount')}"


def _container_status(pod: Object, container: str) -> Mapping[str, Any]:
    known = pod.get("status") or {}
    every = [*(known.get("containerStatuses") or ()), *(known.get("initContainerStatuses") or ())]
    named: list[Mapping[str, Any]] = [each for each in every if not container or each.get("name") == container]
    return named[0] if named else {}


class _Place:
    """Where in a stamped log the reader is, so that a second stream can go on behind a first.

    A stream that starts at a time starts at that whole second, so some of its lines have been read already: those
    with older stamps, and as many with the very last stamp as were read.
    """

    def __init__(self) -> None:
        self.started = False
        self._stamp = ""
        self._count = 0
        self._again = ""
        self._skip = 0

    @property
    def since(self) -> str:
        """The time to start the next stream at; empty to start at the beginning."""
        return self._stamp

    def rewind(self) -> None:
        """The next line may be one that was read before."""
        self._again, self._skip = self._stamp, self._count

    def take(self, stamped: str) -> str | None:
        """The line without its stamp; None when it was read before."""
        self.started = True
        stamp, _, line = stamped.partition(" ")
        if self._again:
            order = _order(stamp), _order(self._again)
            if order[0] < order[1]:
                return None
            if order[0] == order[1] and self._skip:
                self._skip -= 1
                return None
            if order[0] > order[1]:
                self._again = ""
        self._count = self._count + 1 if stamp == self._stamp else 1
        self._stamp = stamp
        return line


def _order(stamp: str) -> tuple[float, str]:
    """Sorts RFC 3339 stamps with any number of digits behind the point."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    try:
        seconds = datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return float("inf"), stamp
    return seconds, fraction.ljust(9, "0")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    partial = b""
    async for chunk in chunks:
        *whole, partial = (partial + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").removesuffix("\r")
        if len(partial) > LONGEST_LINE:
            yield partial.decode(errors="replace")
            partial = b""
    if partial:
        yield partial.decode(errors="replace")
