"""Sockets of Pathways' programs, and the connections between resource manager, workers and proxies.

The cluster's pods are processes of one machine. There are no ports: on a unix socket only the cluster's owner can
connect. And there is no name server: a pod's name is a link to the directory of its sockets. Each namespace has a
directory of such links, ``$PATHWAYS_LOCAL_NAMES`` for the pods in it.

A connection carries JSON objects, one per line.
Both ends send heartbeats every few seconds, so that each notices a peer that hangs. The end of a peer's process is
noticed at once, because the connection drops.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from pathways_jupyter.base import json_lines
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.tasks import Backoff

_log = logging.getLogger(__name__)

NAMES_VARIABLE = "PATHWAYS_LOCAL_NAMES"
SOCKETS_VARIABLE = "PATHWAYS_LOCAL_SOCKETS"

Message = dict[str, Any]

HEARTBEAT_SECONDS = 2.0
SILENCE_SECONDS = 15.0
"""Silence after which the peer counts as lost. Long, because a laptop can be very busy."""

_MOST_UNREAD = 4 << 20
"""Bytes that may be buffered for the peer; one that reads nothing counts as lost."""
_FIRST_RETRY, _LAST_RETRY = 0.1, 2.0


def own_socket(port: int) -> Path:
    """Return the unix socket that replaces a port of this pod.

    Raises:
      ConfigError: This is no pod.
    """
    directory = os.environ.get(SOCKETS_VARIABLE)
    if not directory:
        raise ConfigError(f"{SOCKETS_VARIABLE} is not set: this program runs in pods of the embedded cluster only.")
    return Path(directory) / str(port)


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``.

    Raises:
      ConfigError: It is not of that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{address!r} is not of the form HOST:PORT.", hint="For example: pathways-head:29001.")
    return host, int(port)


def link_of(names: Path, host: str) -> Path:
    """Return the link that stands for a pod's name, which may not exist.

    Args:
      names: The links of the namespace in which the name is used.
      host: ``NAME`` or ``HOSTNAME.SUBDOMAIN``; a namespace may follow, as in ``HOSTNAME.SUBDOMAIN.NAMESPACE.svc``.
    """
    parts = host.split(".")
    return (names.parent / parts[2] if len(parts) > 2 else names) / ".".join(parts[:2])


def resolve(address: str) -> Path:
    """Return the unix socket that replaces a port of a pod, from ``host:port``.

    Raises:
      OSError: The name is unknown at the moment.
    """
    host, port = split_address(address)
    # The link's target: the path through the link may be too long for a socket.
    return link_of(Path(os.environ.get(NAMES_VARIABLE, "")), host).readlink() / str(port)


class LinkError(Exception):
    """The peer went away or fell silent."""


class Link:
    """One end of a connection.

    Attributes:
      accepted: Whether the peer has sent a message.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.accepted = False
        self._beating = asyncio.create_task(self._beat())

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; when it cannot arrive, :meth:`receive` raises."""
        if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            self._writer.transport.abort()
        if not self._writer.is_closing():
            self._writer.write(json_lines.encode({"type": kind, **fields}))

    async def receive(self) -> Message:
        """Receive the next message that is not a heartbeat.

        Raises:
          LinkError: The connection is lost; the caller logs the reason.
        """
        while True:
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    message = json_lines.decode(await self._reader.readline())
                if message["type"] != _BEAT:
                    self.accepted = True
                    return message
            except TimeoutError:
                raise LinkError(f"silent for {SILENCE_SECONDS:g} s") from None
            except (OSError, ValueError, KeyError) as error:
                raise LinkError(str(error)) from error

    async def close(self) -> None:
        """Close the connection after everything has been sent."""
        self._beating.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self.send(_BEAT)


async def connections(address: str) -> AsyncIterator[Link]:
    """Connect to ``host:port``, and again each time that the caller is done with a connection.

    Each attempt resolves the name anew: programs of a cluster start in any order, and pods are replaced.
    """
    retries = Backoff(_FIRST_RETRY, _LAST_RETRY)
    logged = False
    async for _ in retries:
        try:
            link = Link(*await asyncio.open_unix_connection(resolve(address), limit=json_lines.MAX_BYTES))
        except OSError as error:
            if not logged:
                _log.info("Waiting for %s: %s", address, error)
                logged = True
            continue
        try:
            yield link
        finally:
            await link.close()
        if link.accepted:
            retries.reset()


async def listen(port: int, accept: Callable[[Link], Awaitable[None]]) -> asyncio.Server:
    """Listen on a port of this pod; `accept` is called with a :class:`Link` for each connection."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer)
        try:
            await accept(link)
        finally:
            await link.close()

    return await asyncio.start_unix_server(connected, own_socket(port), limit=json_lines.MAX_BYTES)


_BEAT = "beat"
