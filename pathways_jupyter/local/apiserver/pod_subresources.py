"""Subresources of pods: log, exec, port-forward, eviction; and the interface of the kubelet, which serves them.

Exec has standard streams, the terminal's size and the final status each on its channel of a WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Protocol

from aiohttp import web

from pathways_jupyter.base import tasks
from pathways_jupyter.local.apiserver import bodies
from pathways_jupyter.local.apiserver.api_errors import StatusError, bad_request
from pathways_jupyter.local.apiserver.channels import CHUNK, Channels, open_channels
from pathways_jupyter.local.apiserver.port_forward import SPDY_PROTOCOL, forward_over_channels, forward_over_spdy
from pathways_jupyter.local.apiserver.printing import seconds_of
from pathways_jupyter.local.apiserver.resources import PODS, Object, encode
from pathways_jupyter.local.apiserver.route import ObjectRequest, flag, number
from pathways_jupyter.local.apiserver.store import Store

_REFUSAL_SECONDS = 0.05
"""Longest wait for the error of a followed log, since a log that is still empty yields nothing at all."""
_EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_LAST_OUTPUT_SECONDS = 2.0
"""Longest wait for output after the program's end, which its children may hold open."""


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
    ) -> AsyncGenerator[bytes, None]:
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


async def serve_pod_subresource(
    request: web.BaseRequest, store: Store, runtime: PodRuntime, route: ObjectRequest, *, idle_seconds: float
) -> web.StreamResponse:
    """Answer one request for a pod's log, its eviction, or a connection into it.

    Args:
      idle_seconds: How long a connection may be without a message.

    Raises:
      StatusError: It cannot be done.
    """
    if route.subresource == "eviction":
        return await _evict(request, store, route)
    if route.subresource != "log" and request.headers.get("Upgrade", "").lower() != "websocket":
        raise bad_request("unable to upgrade: this path needs a WebSocket")
    pod = store.record(PODS, route.namespace, route.name).object
    uid: str = pod["metadata"]["uid"]
    if route.subresource == "portforward":
        spdy = SPDY_PROTOCOL in request.headers.get("Sec-WebSocket-Protocol", "")
        forward = forward_over_spdy if spdy else forward_over_channels
        return await forward(request, pod, partial(runtime.dial, uid), idle_seconds=idle_seconds)
    container = _container(request.query.get("container", ""), pod)
    if route.subresource == "log":
        return await _log(request, runtime, pod, container)
    return await _exec(request, runtime, uid, container, idle_seconds=idle_seconds)


def _container(container: str, pod: Object) -> str:
    """Return the container of a request: the named one, or the only one; kubectl finds an annotated default itself."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [each["name"] for each in spec["containers"]]
    if container:
        if container not in [*names, *(each["name"] for each in spec.get("initContainers") or ())]:
            raise bad_request(f"container {container} is not valid for pod {name}")
        return container
    if len(names) > 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
    return str(names[0])


async def _log(request: web.BaseRequest, runtime: PodRuntime, pod: Object, container: str) -> web.StreamResponse:
    query, name = request.query, pod["metadata"]["name"]
    follow, previous, limit = flag(query, "follow"), flag(query, "previous"), number(query, "limitBytes")
    since, stamp = number(query, "sinceSeconds"), query.get("sinceTime", "")
    begin = seconds_of(stamp) if since is None else time.time() - since
    if begin is None and stamp:
        raise bad_request(f'sinceTime: Invalid value: "{stamp}"')
    statuses = pod.get("status") or {}
    listed = [*(statuses.get("containerStatuses") or ()), *(statuses.get("initContainerStatuses") or ())]
    status: Object = next((each for each in listed if each.get("name") == container), {"state": {"waiting": {}}})
    waiting = (status.get("state") or {}).get("waiting")
    if waiting is not None and not previous and not status.get("restartCount"):
        raise bad_request(
            f'container "{container}" in pod "{name}" is waiting to start:'
            f" {waiting.get('reason') or 'ContainerCreating'}"
        )
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    response.enable_chunked_encoding()
    try:
        pieces = runtime.logs(
            pod["metadata"]["uid"],
            container,
            follow=follow,
            tail=number(query, "tailLines"),
            previous=previous,
            since=begin,
            timestamps=flag(query, "timestamps"),
        )
        async with contextlib.aclosing(pieces) as stream:
            # The first piece comes before the response begins: after that an error could not be one any more.
            first = asyncio.ensure_future(anext(stream, b""))
            try:
                await asyncio.wait({first}, timeout=_REFUSAL_SECONDS if follow else None)
                if first.done():
                    first.result()
                await response.prepare(request)
                piece, left = await first, math.inf if limit is None else limit
                while piece and left > 0:
                    await response.write(piece if len(piece) <= left else piece[: int(left)])
                    left -= len(piece)
                    piece = await anext(stream, b"") if left > 0 else b""
            finally:
                await tasks.stop(first)
    except (LookupError, OSError) as error:
        if not response.prepared:
            # A LookupError's message is worded as a real kubelet's.
            worded = isinstance(error, LookupError) and error.args and isinstance(error.args[0], str)
            why = error.args[0] if worded else f'logs of container "{container}" in pod "{name}" not found: {error}'
            raise bad_request(why) from error
    return response


async def _evict(request: web.BaseRequest, store: Store, route: ObjectRequest) -> web.Response:
    body = await bodies.read_object(request, optional=True)
    options = body.get("deleteOptions") or {}
    if not isinstance(options, dict):
        raise bad_request("deleteOptions must be an object")
    grace = options.get("gracePeriodSeconds")
    store.delete(PODS, route.namespace, route.name, grace=grace if isinstance(grace, int) else None)
    return bodies.answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, status=201)


async def _exec(
    request: web.BaseRequest, runtime: PodRuntime, uid: str, container: str, *, idle_seconds: float
) -> web.StreamResponse:
    """Run a command in a container, with its streams on a WebSocket.

    Raises:
      StatusError: 400 (no command, no streams), 403 (protocol), 404 (the container does not run).
    """
    command = request.query.getall("command", [])
    if not command or "\0" in "".join(command):
        raise bad_request("you must specify at least 1 command for the container")
    streams = {each for each in ("stdin", "stdout", "stderr") if flag(request.query, each)}
    if not streams:
        raise bad_request("you must specify at least one of stdin, stdout, stderr")
    process: ExecProcess | None = None
    failure: dict[str, Any] = {}
    # Before the upgrade, after which an error could not be a response any more.
    try:
        process = await runtime.exec(uid, container, command, stdin="stdin" in streams, tty=flag(request.query, "tty"))
    except LookupError as error:
        why = f'unable to upgrade connection: container not found ("{container}")'
        raise StatusError(404, why) from error
    except OSError as error:
        why = f'Internal error occurred: error executing command in container: exec: "{command[0]}": {error}'
        failure = {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": why, "code": 500}
    try:
        async with open_channels(request, _EXEC_PROTOCOLS, idle_seconds=idle_seconds) as channels:
            if process is None:
                await channels.send(bytes([_STATUS]) + encode(failure))
            else:
                await tasks.first_done(_run(channels, process, streams), _copy_in(channels, process))
    finally:
        if process is not None:
            process.kill()
    return channels.socket


async def _run(channels: Channels, process: ExecProcess, streams: set[str]) -> None:
    """Copy a program's output to the client, and at its end send its exit status."""

    async def discard(reader: asyncio.StreamReader) -> None:
        # Output that the client did not ask for is read, so that the program does not block on it.
        while await reader.read(CHUNK):
            pass

    outputs = [
        asyncio.create_task(channels.send_stream(channel, reader) if name in streams else discard(reader))
        for channel, reader, name in ((_STDOUT, process.stdout, "stdout"), (_STDERR, process.stderr, "stderr"))
        if reader is not None
    ]
    try:
        code = await process.wait()
        await asyncio.wait(outputs, timeout=_LAST_OUTPUT_SECONDS)
    finally:
        await tasks.stop(*outputs)
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    if code:
        status = {
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    await channels.send(bytes([_STATUS]) + encode(status))


async def _copy_in(channels: Channels, process: ExecProcess) -> None:
    """Copy from client to program, until the client disconnects."""
    while (message := await channels.next_message()) is not None:
        channel, data = message
        if channel == _STDIN and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(data)
                await process.stdin.drain()
        elif channel == _RESIZE:
            # A malformed message is ignored.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                size = json.loads(data)
                process.resize(int(size["Width"]), int(size["Height"]))
        elif channel == _CLOSE and data == bytes([_STDIN]) and process.stdin is not None:
            process.stdin.close()
