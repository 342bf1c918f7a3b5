"""The `kubernetes` package's client as this project uses it: thin subclasses, each with its reason.

Requests, streams, TLS and proxies go through the package (`kubernetes.aio`), on plain JSON: its typed models are never
built. Importing it takes a few tenths of a second, because it imports its synchronous half first. So the rest of `kube`
imports this module when the first request is sent.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.stream.ws_client import get_websocket_url
from yarl import URL

from pathways_jupyter.base.errors import ClusterError, ConnectionLost, Unreachable
from pathways_jupyter.kube.cluster_access import Cluster, tls
from pathways_jupyter.kube.problems import lost, unreachable

CONNECT_SECONDS = 10.0
"""Longest time to connect, TLS included."""
READ_BYTES = 256 * 1024
"""Bytes that are buffered for a slow reader before reading from the connection pauses."""
READ_ERRORS = (aiohttp.ClientError, OSError, ValueError)
"""Errors of reading an answer; :func:`failure` translates them."""

_SMALL_BYTES = 16 * 1024
_QUEUED_BYTES = 16 * 1024
"""So many bytes wait where a connection is slow. Fewer may only wait some milliseconds, for TCP to acknowledge them."""
_BYTES_ACKED = slice(120, 128)
"""Position of `tcpi_bytes_acked` in Linux's ``tcp_info``."""
_SO_NWRITE = 0x1024
"""macOS's option for the bytes in the send buffer, which Python does not name."""
_KEEPALIVE = {"TCP_KEEPIDLE": 4, "TCP_KEEPALIVE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""Interval and number of TCP's probes on an idle connection, in seconds: one that a network has forgotten ends within
10 s. macOS has the second name for the first one."""
_FOREVER = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)


class Refused(Exception):
    """The server answered the request for a WebSocket with an ordinary answer."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers


class Api(ApiClient):  # type: ignore[misc]  # The package is not typed.
    """The package's client for one cluster; create it in the event loop that uses it.

    It differs from the package's in three ways:

    - TLS uses the cluster's own settings, whose client certificate was loaded from memory. The package writes keys to
      temporary files, which stay until the process exits, and for ever if it is killed.
    - Each request asks the cluster's credentials for a token, so that one that expires is renewed in between, and none
      is sent where a client certificate is the credential. The package's hook needs a token to replace.
    - The environment's proxies and ``.netrc`` are not read again: the cluster knows its proxy, and a password in
      ``.netrc`` would replace the token.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._credentials = cluster.credentials
        # The one that the first connection was made with.
        self._certificate: str | None = None
        self.connector = aiohttp.TCPConnector(
            limit=0, ssl=cluster.ssl or tls(), keepalive_timeout=60, socket_factory=_probed_socket
        )
        authorities = cluster.ssl.get_ca_certs(binary_form=True) if cluster.ssl else []
        configuration = Configuration(
            host=cluster.server,
            proxy=cluster.proxy or None,
            tls_server_name=cluster.server_name or None,
            # The package makes TLS settings in any case; with authorities it need not load the system's.
            ca_cert_data=b"".join(authorities) or None,
            client_session_kwargs={
                "connector": self.connector,
                # The package's own default headers are a dictionary, in which a name has one value.
                "headers": list(cluster.headers),
                "trust_env": False,
                "cookie_jar": aiohttp.DummyCookieJar(),
                "read_bufsize": READ_BYTES,
                "middlewares": (_explain_refused_upgrade,),
                "ws_response_class": Socket,
            },
        )
        super().__init__(configuration)
        self.user_agent = "pathways-jupyter"
        # Answers of an API server nearby are compressed more slowly than they are sent.
        self.set_default_header("Accept-Encoding", "identity")

    async def prepare(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        anonymous: bool = False,
    ) -> tuple[Any, ...]:
        """Return the arguments of a request, with current credentials, for :meth:`send` or :meth:`connect`.

        Args:
          anonymous: Without credentials, so that none are asked for.

        Raises:
          ClusterError: There are no credentials.
        """
        headers = {"Accept": "application/json, */*", "Content-Type": content_type}
        if not anonymous and (authorization := await self._credentials.authorization()):
            headers["Authorization"] = authorization
        serialized = await self.param_serialize(
            method, path, query_params=dict(query or {}), header_params=headers, body=body
        )
        return tuple(serialized)

    @property
    def is_outdated(self) -> bool:
        """Return whether the credentials have brought another client certificate than the open connections have."""
        return self._certificate not in {None, self._credentials.certificate}

    def _note_certificate(self) -> None:
        if self._certificate is None:
            self._certificate = self._credentials.certificate

    async def send(self, request: tuple[Any, ...]) -> aiohttp.ClientResponse:
        """Send a request, and return once the head of its answer has arrived.

        Raises:
          ClusterError: The server could not be reached, or the connection was lost.
        """
        method, url, *rest = request
        self._note_certificate()
        try:
            # Encoded already: a quoted character in a name must stay quoted.
            answer = await self.call_api(method, URL(url, encoded=True), *rest, _request_timeout=_FOREVER)
        except READ_ERRORS as error:
            raise failure(error, self.configuration.host) from error
        response: aiohttp.ClientResponse = answer.response
        return response

    async def connect(self, request: tuple[Any, ...], protocols: Sequence[str]) -> Socket:
        """Open a WebSocket.

        The package's own client ignores the proxy and the TLS server name, ends a connection whose message exceeds
        4 MiB, and its heartbeat ends one whose reader is slow, because the pong is behind unread data.

        Raises:
          Refused: The server answered, but not with a WebSocket.
          ClusterError: It could not be reached, or the connection was lost.
        """
        method, url, headers, *_ = request
        self._note_certificate()
        rest = self.rest_client
        # The package makes its session with the first request, and a WebSocket may be the first.
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        try:
            opened: Socket = await rest.pool_manager.ws_connect(
                URL(get_websocket_url(url), encoded=True),
                method=method,
                headers={name: value for name, value in headers.items() if name != "Content-Type"},
                protocols=protocols,
                proxy=rest.proxy,
                server_hostname=self.configuration.tls_server_name,
                max_msg_size=0,
                autoping=False,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise lost(f"the answer to the upgrade request is invalid ({error.message.lower()})") from error
        except READ_ERRORS as error:
            raise failure(error, self.configuration.host) from error
        return opened

    async def close(self) -> None:
        """Close every connection at once."""
        await super().close()
        await self.connector.close(abort_ssl=True)


@dataclass(frozen=True)
class Sent:
    """Bytes sent over a connection that the other end's TCP has acknowledged.

    Attributes:
      acknowledged: Bytes since the connection began, frames and TLS included; without Linux a number that rises
        when more were than was sent meanwhile.
      waiting: Bytes that the kernel has, and that were not.
    """

    acknowledged: int
    waiting: int

    def moves_since(self, before: Sent) -> bool:
        """Return whether a part of what was waiting has been taken since: the connection is slow, and not dead.

        An answer does not show it: on a slow connection it comes behind all data that were sent before the question.
        What was just sent shows nothing: a proxy on the way takes it also when nothing leads on from there.
        """
        return before.waiting >= _QUEUED_BYTES and self.acknowledged > before.acknowledged


class Socket(aiohttp.ClientWebSocketResponse):
    """A WebSocket that can also be ended without waiting for the server, and sends large messages without a copy."""

    def sent(self) -> Sent:
        """Return how much of what was sent the other end has taken."""
        connection = self._response.connection
        transport = connection.transport if connection is not None else None
        raw = transport.get_extra_info("socket") if transport is not None else None
        try:
            if raw is None:
                return Sent(0, 0)
            if sys.platform != "linux":
                waiting = raw.getsockopt(socket.SOL_SOCKET, _SO_NWRITE)
                return Sent(-waiting, waiting)
            info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.stop)
            (waiting,) = struct.unpack("i", fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(4)))
            return Sent(int.from_bytes(info[_BYTES_ACKED], sys.byteorder), waiting)
        except (OSError, ValueError):
            # It has just been closed; uvloop's sockets raise a ValueError then.
            return Sent(0, 0)

    async def send_parts(self, *parts: bytes | memoryview) -> None:
        """Send one binary message made of `parts`; wait while the write buffer is full.

        The package joins, copies, masks and copies a message. Masks protect caches that read plain HTTP from what
        scripts in browsers send: nothing reads inside TLS, so there the mask is zero, which leaves the bytes as they
        are, and they go from where they are into the encryption. The server need not unmask them, either.

        Args:
          parts: At least one; the last of a large message is the one that is not copied. Must not change afterwards.

        Raises:
          ConnectionResetError: The connection has ended.
        """
        connection = self._response.connection
        if self.closed or connection is None or connection.transport is None or connection.transport.is_closing():
            raise ConnectionResetError("Cannot write to a closed connection")
        if connection.transport.get_extra_info("ssl_object") is None:
            await self.send_bytes(b"".join(parts))
            return
        size = sum(map(len, parts))
        # TLS encrypts a record for each of these, which costs more than to copy a small part.
        if size <= _SMALL_BYTES:
            connection.transport.write(b"".join((_frame_head(size), *parts)))
        else:
            *small, large = parts
            connection.transport.writelines((b"".join((_frame_head(size), *small)), large))
        # Returns at once unless the transport has asked to pause.
        await self._writer.protocol._drain_helper()

    def abort(self) -> None:
        """Drop the connection; unsent bytes are lost."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()


def _frame_head(size: int) -> bytes:
    """Return the head of a client's binary frame with `size` bytes of payload, and its mask of zeros."""
    if size < 126:
        return struct.pack("!BB4x", 0x82, 0x80 | size)
    if size < 1 << 16:
        return struct.pack("!BBH4x", 0x82, 0x80 | 126, size)
    return struct.pack("!BBQ4x", 0x82, 0x80 | 127, size)


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return the socket for a connection to `address`, which TCP probes while nothing is sent over it."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


async def _explain_refused_upgrade(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep the body of an answer that refuses a WebSocket: it has the reason, and aiohttp drops it."""
    response = await handler(request)
    if "Upgrade" in request.headers and response.status != 101:
        try:
            body = await response.content.read(READ_BYTES)
        finally:
            response.close()
        raise Refused(response.status, body, response.headers)
    return response


def failure(error: BaseException, server: str) -> ClusterError:
    """Return the error for a request that was not answered."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        url = error.request_info.real_url
        return Unreachable(
            f"The proxy {url.host}:{url.port} refused to connect (HTTP {error.status}).",
            hint="Check the proxy-url and its credentials.",
        )
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return Unreachable(
            f"The proxy {error.host}:{error.port} cannot be reached: {error.os_error.strerror or error.os_error}.",
            hint="Check the proxy-url.",
        )
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return unreachable(error.certificate_error, server)
    if isinstance(error, aiohttp.ClientConnectorError):
        return unreachable(error.os_error, server)
    if isinstance(error, aiohttp.ServerTimeoutError):
        return unreachable(TimeoutError(), server)
    if isinstance(error, aiohttp.InvalidURL):
        return unreachable(error, server)
    problem = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, aiohttp.ServerDisconnectedError):
        problem = "the server closed it"
    elif isinstance(error, aiohttp.ClientPayloadError):
        problem = "the answer ended halfway"
    elif isinstance(error, aiohttp.ClientResponseError):
        problem = "the answer is not HTTP/1.x"
    return ConnectionLost(
        f"The connection to the API server was lost: {problem}.",
        hint="Try again; the server may be restarting.",
    )
