"""Exec and attach over WebSocket: standard streams, terminal size and the final status, each on its channel."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from multidict import MultiMapping

from pathways_jupyter.local.apiserver.api_errors import StatusError, bad_request
from pathways_jupyter.local.apiserver.bodies import encode
from pathways_jupyter.local.apiserver.channels import Channels, open_channels
from pathways_jupyter.local.apiserver.route import flag
from pathways_jupyter.local.apiserver.runtime import ExecProcess, PodRuntime

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_LAST_OUTPUT_SECONDS = 2.0
"""Longest wait for output after the program's end, which its children may hold open."""

SUCCESS = {"metadata": {}, "status": "Success"}


@dataclass(frozen=True)
class Command:
    """A command to run, and the streams that the client wants."""

    words: list[str]
    tty: bool
    streams: frozenset[str]

    @property
    def stdin(self) -> bool:
        """Whether the program gets standard input."""
        return "stdin" in self.streams


async def exec_over_websocket(
    request: web.BaseRequest, runtime: PodRuntime, uid: str, container: str, *, idle_seconds: float
) -> web.StreamResponse:
    """Run a command in a container, with its streams on a WebSocket.

    Raises:
      StatusError: 400 (no command, no streams), 403 (protocol), 404 (the container does not run).
    """
    command = read_command(request.query)
    started: ExecProcess | OSError
    try:
        started = await runtime.exec(uid, container, command.words, stdin=command.stdin, tty=command.tty)
    except LookupError as error:
        raise container_not_found(container) from error
    except OSError as error:
        started = error
    try:
        async with open_channels(request, PROTOCOLS, idle_seconds=idle_seconds) as channels:
            if isinstance(started, OSError):
                await channels.send_json(_STATUS, encode(unstartable(command.words, started)))
            else:
                await _serve(channels, started, command)
    finally:
        if not isinstance(started, OSError):
            started.kill()
    await channels.close()
    return channels.socket


async def attach_over_websocket(
    request: web.BaseRequest, runtime: PodRuntime, uid: str, container: str, *, idle_seconds: float
) -> web.StreamResponse:
    """Send the container's output from now on; containers here have no standard input to attach to.

    Raises:
      StatusError: 403, a protocol that is not spoken here.
    """
    async with open_channels(request, PROTOCOLS, idle_seconds=idle_seconds) as channels:
        output = asyncio.create_task(_send_logs(channels, runtime, uid, container))
        gone = asyncio.create_task(_until_gone(channels))
        try:
            await asyncio.wait({output, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (output, gone):
                task.cancel()
            await asyncio.gather(output, gone, return_exceptions=True)
    await channels.close()
    return channels.socket


def read_command(query: MultiMapping[str]) -> Command:
    """Read the command and streams of an exec request.

    Raises:
      StatusError: 400, it names no command or no stream.
    """
    words = query.getall("command", [])
    if not words or "\0" in "".join(words):
        raise bad_request("you must specify at least 1 command for the container")
    wanted = {each for each in ("stdin", "stdout", "stderr") if flag(query, each)}
    if not wanted:
        raise bad_request("you must specify at least one of stdin, stdout, stderr")
    tty = flag(query, "tty")
    streams = {"error", *wanted, *(["resize"] if tty else [])} - ({"stderr"} if tty else set())
    return Command(words, tty, frozenset(streams))


def container_not_found(container: str) -> StatusError:
    """404: the container does not run."""
    return StatusError(
        f'unable to upgrade connection: container not found ("{container}")', status=404, reason="NotFound"
    )


def unstartable(command: list[str], error: OSError) -> dict[str, Any]:
    """The final status of a program that could not be started."""
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "InternalError",
        "message": f'Internal error occurred: error executing command in container: exec: "{command[0]}": {error}',
        "code": 500,
    }


def exit_status(code: int) -> dict[str, Any]:
    """The final status of a program that ended."""
    if code == 0:
        return dict(SUCCESS)
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def resize(process: ExecProcess, message: bytes) -> None:
    """Apply a resize message; ignore a malformed one."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        size = json.loads(message)
        width, height = int(size["Width"]), int(size["Height"])
        if 0 < width < 65536 and 0 < height < 65536:
            process.resize(width, height)


async def drain_outputs(outputs: list[asyncio.Task[None]], process: ExecProcess) -> int:
    """Wait for a program's end and for the last of its output; return its exit code."""
    code = await process.wait()
    if outputs:
        await asyncio.wait(outputs, timeout=_LAST_OUTPUT_SECONDS)
    return code


async def discard(reader: asyncio.StreamReader) -> None:
    """Read output that the client did not ask for, so that the program does not block on it."""
    while await reader.read(65536):
        pass


async def _serve(channels: Channels, process: ExecProcess, command: Command) -> None:
    outputs = [
        asyncio.create_task(channels.send_stream(channel, reader) if name in command.streams else discard(reader))
        for channel, reader, name in ((_STDOUT, process.stdout, "stdout"), (_STDERR, process.stderr, "stderr"))
        if reader is not None
    ]
    inwards = asyncio.create_task(_pump_in(channels, process))
    ended = asyncio.create_task(drain_outputs(outputs, process))
    try:
        await asyncio.wait({inwards, ended}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            await channels.send_json(_STATUS, encode(exit_status(ended.result())))
    finally:
        tasks = (*outputs, inwards, ended)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump_in(channels: Channels, process: ExecProcess) -> None:
    """Copy from client to program, until the client disconnects."""
    while (message := await channels.next_message()) is not None:
        channel, data = message
        if channel == _STDIN and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(data)
                await process.stdin.drain()
        elif channel == _RESIZE:
            resize(process, data)
        elif channel == _CLOSE and data == bytes([_STDIN]) and process.stdin is not None:
            process.stdin.close()


async def _send_logs(channels: Channels, runtime: PodRuntime, uid: str, container: str) -> None:
    with contextlib.suppress(LookupError, OSError):
        async for piece in runtime.logs(
            uid, container, follow=True, tail=0, previous=False, since=None, timestamps=False
        ):
            await channels.send(bytes([_STDOUT]) + piece)
    await channels.send_json(_STATUS, encode(SUCCESS))


async def _until_gone(channels: Channels) -> None:
    while await channels.next_message() is not None:
        pass
