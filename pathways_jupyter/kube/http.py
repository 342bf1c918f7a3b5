"""HTTP/1.1 client connections, on asyncio alone.

Why not aiohttp: a supervisor is a new process, and importing aiohttp takes longer than a whole connect may take. A
Kubernetes client needs little of HTTP: request bodies from memory, answers of known length or in chunks, and
keep-alive.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from pathways_jupyter.kube.problems import ConnectionLost, Unreachable, unreachable

if TYPE_CHECKING:
    from pathways_jupyter.kube.cluster import Cluster

CONNECT_SECONDS = 10.0
READ_BYTES = 256 * 1024
"""Size of a read, and the most that is buffered per connection before reading pauses."""
_LONGEST_HEAD = 64 * 1024

_P = TypeVar("_P", bound=asyncio.BaseProtocol)


class Connection:
    """A connection, which carries one exchange at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def usable(self) -> bool:
        """Whether another request can be sent: not once the server has closed it."""
        return not self._writer.is_closing() and not self._reader.at_eof()

    async def exchange(self, request: bytes) -> Response:
        """Send a request, and return once the head of its answer has arrived.

        Raises:
          ConnectionLost: The connection ended first.
        """
        try:
            self._writer.write(request)
            await self._writer.drain()
            status, headers = await self._head()
            # 100 Continue is not the answer yet.
            while status == 100:
                status, headers = await self._head()
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            self.close()
            raise _lost(error) from error
        except BaseException:
            # Cancelled: an answer that is still on its way must not become that of the next request.
            self.close()
            raise
        return Response(self, self._reader, status, headers)

    def close(self) -> None:
        """Abort the connection; unsent bytes are dropped."""
        self._writer.transport.abort()

    async def _head(self) -> tuple[int, dict[str, str]]:
        return parse_head(await self._reader.readuntil(b"\r\n\r\n"))


class Response:
    """An answer whose body is still to be read; then the connection can carry the next request."""

    def __init__(
        self, connection: Connection, reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]
    ) -> None:
        self.status = status
        self.headers = headers
        self.connection = connection
        self._reader = reader

    async def read(self) -> bytes:
        """Read the whole body.

        Raises:
          ConnectionLost: It ended too early.
        """
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, in chunks of at most :data:`READ_BYTES`.

        Raises:
          ConnectionLost: It ended too early.
        """
        done = False
        try:
            async for chunk in self._framed():
                yield chunk
            done = True
        except (OSError, EOFError, ValueError) as error:
            raise _lost(error) from error
        finally:
            # The rest of a body that was not read to its end would be taken for the next answer.
            if not done or self.headers.get("connection", "").lower() == "close":
                self.connection.close()

    def close(self) -> None:
        """Drop the rest of the body, and close the connection."""
        self.connection.close()

    async def _framed(self) -> AsyncIterator[bytes]:
        if self.status in {204, 304}:
            return
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16):
                async for chunk in self._exactly(size):
                    yield chunk
                await self._reader.readexactly(2)
            while await self._reader.readuntil(b"\r\n") != b"\r\n":
                pass
        elif "content-length" in self.headers:
            async for chunk in self._exactly(int(self.headers["content-length"])):
                yield chunk
        else:
            while chunk := await self._reader.read(READ_BYTES):
                yield chunk
            self.connection.close()

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size:
            chunk = await self._reader.read(min(size, READ_BYTES))
            if not chunk:
                raise EOFError("the answer ended halfway")
            size -= len(chunk)
            yield chunk


async def connect(cluster: Cluster) -> Connection:
    """Open a connection to the cluster's API server.

    Raises:
      Unreachable: It cannot be reached, or TLS with it failed.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(READ_BYTES, loop)
    transport, protocol = await dial(cluster, lambda: asyncio.StreamReaderProtocol(reader, loop=loop))
    return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def dial(cluster: Cluster, factory: Callable[[], _P]) -> tuple[asyncio.Transport, _P]:
    """Connect a protocol from `factory` to the API server, through a proxy and TLS where the cluster has them.

    Raises:
      Unreachable: It cannot be reached, or TLS with it failed.
    """
    url = urlsplit(cluster.server)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            if cluster.proxy:
                transport, protocol = await _dial_through(cluster, url, factory)
            else:
                transport, protocol = await asyncio.get_running_loop().create_connection(
                    factory, url.hostname or "", _port(url), **_tls(cluster, url)
                )
    except (OSError, UnicodeError) as error:
        raise unreachable(error, cluster.server) from error
    # So that the operating system detects a peer that vanished without closing the connection.
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return transport, protocol


async def _dial_through(cluster: Cluster, url: SplitResult, factory: Callable[[], _P]) -> tuple[asyncio.Transport, _P]:
    proxy = urlsplit(cluster.proxy)
    if proxy.scheme != "http":
        raise Unreachable(f"Proxies of type {proxy.scheme} are not supported.", hint="Use an http:// proxy-url.")
    loop = asyncio.get_running_loop()
    target = f"{url.hostname}:{_port(url)}"
    request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
    if proxy.username:
        pair = base64.b64encode(f"{proxy.username}:{proxy.password or ''}".encode()).decode()
        request += f"Proxy-Authorization: Basic {pair}\r\n"
    raw = await asyncio.to_thread(_connect_proxy, proxy.hostname or "", proxy.port or 80, f"{request}\r\n".encode())
    try:
        return await loop.create_connection(factory, sock=raw, **_tls(cluster, url))
    except BaseException:
        raw.close()
        raise


def _connect_proxy(host: str, port: int, request: bytes) -> socket.socket:
    """Open a socket through the proxy (blocking).

    Its head is read byte by byte, because the bytes behind it belong to the API server's TLS.
    """
    raw = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
    try:
        raw.sendall(request)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = raw.recv(1)
            if not byte or len(head) > _LONGEST_HEAD:
                raise Unreachable(f"The proxy {host}:{port} closed the connection.", hint="Check the proxy-url.")
            head += byte
        status, _ = parse_head(head)
        if status != 200:
            raise Unreachable(
                f"The proxy {host}:{port} refused to connect (HTTP {status}).",
                hint="Check the proxy-url and its credentials.",
            )
        raw.setblocking(False)
    except BaseException:
        raw.close()
        raise
    return raw


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Return the status and headers (lower-case names) of an answer.

    Raises:
      ValueError: It is not HTTP.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    protocol, _, rest = first.partition(" ")
    if not protocol.startswith("HTTP/1."):
        raise ValueError("the answer is not HTTP/1.x")
    headers = {}
    for line in lines:
        name, separator, value = line.partition(":")
        if separator:
            headers[name.strip().lower()] = value.strip()
    return int(rest[:3]), headers


def request_bytes(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return the bytes of a request.

    Raises:
      ValueError: A header contains a line break.
    """
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header must be one line")
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + body


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _tls(cluster: Cluster, url: SplitResult) -> dict[str, Any]:
    if cluster.ssl is None:
        # asyncio accepts a server_hostname only with TLS.
        return {}
    return {"ssl": cluster.ssl, "server_hostname": cluster.server_name or url.hostname}


def _lost(error: BaseException) -> ConnectionLost:
    problem = "the server closed it" if isinstance(error, EOFError) else str(error) or type(error).__name__
    return ConnectionLost(
        f"The connection to the API server was lost: {problem}.", hint="Try again; the server may be restarting."
    )
