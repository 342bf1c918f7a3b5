"""Exec over WebSocket: standard streams, terminal size and the final status, each on its channel."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from aiohttp import web

from pathways_jupyter.base import tasks
from pathways_jupyter.local.apiserver.api_errors import StatusError, bad_request
from pathways_jupyter.local.apiserver.channels import CHUNK, Channels, open_channels
from pathways_jupyter.local.apiserver.resources import encode
from pathways_jupyter.local.apiserver.route import flag
from pathways_jupyter.local.apiserver.runtime import ExecProcess, PodRuntime

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_LAST_OUTPUT_SECONDS = 2.0
"""Longest wait for output after the program's end, which its children may hold open."""


async def exec_over_websocket(
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
        async with open_channels(request, PROTOCOLS, idle_seconds=idle_seconds) as channels:
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
        for task in outputs:
            task.cancel()
        await asyncio.gather(*outputs, return_exceptions=True)
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
                width, height = int(size["Width"]), int(size["Height"])
                if 0 < width < 65536 and 0 < height < 65536:
                    process.resize(width, height)
        elif channel == _CLOSE and data == bytes([_STDIN]) and process.stdin is not None:
            process.stdin.close()
