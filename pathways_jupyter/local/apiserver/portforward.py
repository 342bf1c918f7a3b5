"""Port-forward over WebSocket, one data and one error channel for each port of the request."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass, field

from aiohttp import web

from pathways_jupyter.local.apiserver.channels import next_message, open_channels, send_stream
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.runtime import PodRuntime
from pathways_jupyter.local.apiserver.status import bad_request

PROTOCOL = "v4.channel.k8s.io"
_MOST_PORTS = 120
"""Channels are numbered by one byte, two to a port."""


@dataclass
class _Port:
    number: int
    data: int
    error: int
    writer: asyncio.StreamWriter | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is known whether something listens."""


async def forward_ports(request: web.BaseRequest, runtime: PodRuntime, pod: Object) -> web.StreamResponse:
    """Connects the ports that a request names, for as long as its WebSocket and one of the connections live.

    Raises:
      StatusError: 400, no or impossible ports; 403, a protocol that is not spoken here.
    """
    ports = [
        _Port(number, 2 * index, 2 * index + 1)
        for index, number in enumerate(read_ports(request.query.getall("ports", [])))
    ]
    socket = await open_channels(request, [PROTOCOL])
    for port in ports:
        for channel in (port.data, port.error):
            await socket.send_bytes(struct.pack("<BH", channel, port.number))
    pumps = [asyncio.create_task(_pump_out(socket, runtime, pod, port)) for port in ports]
    outwards, inwards = asyncio.create_task(_all(pumps)), asyncio.create_task(_pump_in(socket, ports))
    try:
        await asyncio.wait({outwards, inwards}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        tasks = (*pumps, outwards, inwards)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for port in ports:
            if port.writer is not None:
                port.writer.close()
    await socket.close()
    return socket


def read_ports(values: list[str]) -> list[int]:
    """The ports of a request: ``ports=1&ports=2`` or ``ports=1,2``.

    Raises:
      StatusError: 400.
    """
    texts = [text for value in values for text in value.split(",")]
    if not texts:
        raise bad_request('query parameter "ports" is required')
    if len(texts) > _MOST_PORTS:
        raise bad_request(f"at most {_MOST_PORTS} ports can be forwarded at once")
    for text in texts:
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536):
            raise bad_request(f'unable to parse "{text}" as a port')
    return [int(text) for text in texts]


def refusal_text(pod: Object, port: int, error: Exception) -> str:
    """What a client is told about a port that cannot be reached."""
    metadata = pod["metadata"]
    return f"error forwarding port {port} to pod {metadata['name']}, uid {metadata['uid']}: {error}"


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)


async def _pump_out(socket: web.WebSocketResponse, runtime: PodRuntime, pod: Object, port: _Port) -> None:
    """Pod to client."""
    try:
        reader, port.writer = await runtime.dial(pod["metadata"]["uid"], port.number)
    except (OSError, LookupError) as error:
        await socket.send_bytes(bytes([port.error]) + refusal_text(pod, port.number, error).encode())
        return
    finally:
        port.answered.set()
    with contextlib.suppress(OSError):
        await send_stream(socket, port.data, reader)


async def _pump_in(socket: web.WebSocketResponse, ports: list[_Port]) -> None:
    """Client to pod."""
    while (message := await next_message(socket)) is not None:
        channel, data = message
        index = channel // 2
        if channel % 2 or index >= len(ports):
            continue
        port = ports[index]
        await port.answered.wait()
        if port.writer is None or port.writer.is_closing():
            continue
        with contextlib.suppress(OSError):
            port.writer.write(data)
            await port.writer.drain()
