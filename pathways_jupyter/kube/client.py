"""HTTP client for one Kubernetes API server, on plain JSON.

Connections are pooled. Requests are retried with backoff where that is safe: requests that were never sent, idempotent
ones, and any that the server rejected because it is overloaded. A server that has never answered is not retried, so
that a wrong address is reported at once.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.kube import http, problems
from pathways_jupyter.kube.messages import Messages
from pathways_jupyter.kube.problems import ConnectionLost, Unreachable
from pathways_jupyter.kube.websocket import Receiver, Refused, WebSocket

if TYPE_CHECKING:
    from pathways_jupyter.kube.cluster import Cluster

Json = dict[str, Any]
Query = Mapping[str, str]

ANSWER_SECONDS = 30.0
"""Longest time for the server's answer to one attempt."""
PATIENCE_SECONDS = 15.0
"""How long a request is retried by default."""
MAX_IDLE = 8
MAX_ANSWER_BYTES = 512 * 1024 * 1024
"""Longest body that is read into memory."""

# Idempotent as this package uses them: doing one twice has the same result.
_IDEMPOTENT = {"GET", "PUT", "PATCH", "DELETE"}
_BUSY = {429, 503}
_CLOCK_TOLERANCE_SECONDS = 2.0
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0

_T = TypeVar("_T")


class Client:
    """Client of one API server; use it as an async context manager, in one event loop.

    Args:
      cluster: The API server and its credentials, from :func:`pathways_jupyter.kube.auth.load`.
      patience: Seconds for which a request is retried while the server cannot be reached, once it has answered at all.
    """

    def __init__(self, cluster: Cluster, *, patience: float = PATIENCE_SECONDS) -> None:
        self.cluster = cluster
        self._patience = patience
        self._idle: deque[http.Connection] = deque()
        self._base = urlsplit(cluster.server)
        self._closed = False
        # Whether this server has ever answered, so that it is worth waiting for.
        self._known = False
        # How far the server's clock is ahead of this machine's, in seconds.
        self._ahead = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        """The context's default namespace."""
        return self.cluster.namespace

    def now(self) -> float:
        """Return the API server's time, in seconds since the epoch; this machine's time before the first answer."""
        return time.time() + self._ahead

    def close(self) -> None:
        """Close all idle connections; requests in progress close theirs when they end."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        repeat: bool | None = None,
    ) -> Json:
        """Send a request and return the answer's JSON object.

        Args:
          path: Below the server's URL, e.g. ``/api/v1/namespaces``.
          repeat: Whether to retry when the answer was lost, so that the server may have acted already; by default
            unless `method` is POST.

        Raises:
          ApiError: The server answered with an error.
          ClusterError: It could not be reached, or the connection was lost.
        """
        payload = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        again = method in _IDEMPOTENT if repeat is None else repeat

        async def attempt() -> bytes:
            # Outside of the timeout: a slow credential plugin must not look like an API server that does not answer.
            headers = await self._headers()
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._send(method, path, query, headers, payload, content_type)
                answer = await self._finish(response)
            if response.status >= 400:
                raise self._refused(response.status, answer, method, path, query)
            return answer

        answer = await self._persist(attempt, again=again)
        try:
            decoded = json.loads(answer) if answer else {}
        except ValueError as error:
            raise _not_an_object(self.cluster.server) from error
        if not isinstance(decoded, dict):
            raise _not_an_object(self.cluster.server)
        return decoded

    async def get(self, path: str, *, query: Query | None = None) -> Json:
        """GET an object or a list."""
        return await self.request("GET", path, query=query)

    async def post(self, path: str, body: Mapping[str, Any], *, query: Query | None = None) -> Json:
        """POST an object."""
        return await self.request("POST", path, query=query, body=body)

    async def delete(self, path: str, *, body: Mapping[str, Any] | None = None, query: Query | None = None) -> Json:
        """DELETE an object; `body` is its DeleteOptions."""
        return await self.request("DELETE", path, query=query, body=body)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query | None = None, patience: float | None = None
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """GET a body that does not end by itself, such as a watch or a followed log.

        Args:
          patience: Seconds for which to retry while the server cannot be reached, instead of the client's own.

        Yields:
          The body's chunks as they arrive. Iterating raises `ConnectionLost` when the body ends too early.

        Raises:
          ApiError: The server answered with an error.
          ClusterError: It could not be reached.
        """

        async def attempt() -> http.Response:
            headers = await self._headers()
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._send("GET", path, query, headers, fresh=True)
                if response.status < 400:
                    return response
                body = await self._finish(response)
            raise self._refused(response.status, body, "GET", path, query)

        response = await self._persist(attempt, again=True, patience=patience)
        try:
            yield response.chunks()
        finally:
            response.close()

    async def websocket(self, path: str, *, protocols: tuple[str, ...], query: Query | None = None) -> Messages:
        """Open a WebSocket for whole messages.

        Raises:
          ApiError: The server refused to.
          ClusterError: It could not be reached.
        """
        messages = Messages()
        messages.socket = await self.open_websocket(path, messages, protocols=protocols, query=query)
        return messages

    async def open_websocket(
        self, path: str, receiver: Receiver, *, protocols: tuple[str, ...], query: Query | None = None
    ) -> WebSocket:
        """Open a WebSocket that passes what it receives to `receiver`.

        One of `protocols` is agreed on; see :attr:`WebSocket.subprotocol`.

        Raises:
          ApiError: The server refused to.
          ClusterError: It could not be reached.
        """

        async def attempt() -> WebSocket:
            encrypted = self.cluster.ssl is not None
            headers = await self._headers()
            async with asyncio.timeout(ANSWER_SECONDS):
                _, socket = await http.dial(self.cluster, lambda: WebSocket(receiver, encrypted=encrypted))
                headers |= {
                    "Connection": "Upgrade",
                    "Upgrade": "websocket",
                    "Sec-WebSocket-Version": "13",
                    "Sec-WebSocket-Key": socket.key,
                    "Sec-WebSocket-Protocol": ", ".join(protocols),
                }
                try:
                    await socket.upgrade(http.request_bytes("GET", self._target(path, query), headers))
                except Refused as refusal:
                    raise self._refused(refusal.status, refusal.body, problems.UPGRADE, path, query) from None
            self._known = True
            if socket.subprotocol not in protocols:
                socket.close()
                raise ClusterError(
                    f"The API server supports none of the protocols {', '.join(protocols)}.",
                    hint="Check the cluster's version.",
                )
            return socket

        return await self._persist(attempt, again=True)

    # One attempt.

    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        headers: dict[str, str],
        payload: bytes = b"",
        content_type: str = "",
        *,
        fresh: bool = False,
    ) -> http.Response:
        if payload:
            headers["Content-Type"] = content_type
        request = http.request_bytes(method, self._target(path, query), headers, payload)
        connection = None if fresh else self._take()
        if connection is None:
            connection = await http.connect(self.cluster)
        response = await connection.exchange(request)
        self._known = True
        if "date" in response.headers:
            self._set_clock(response.headers["date"])
        return response

    def _set_clock(self, date: str) -> None:
        try:
            _, day, month, year, clock, _ = date.split()
            date_time = datetime.fromisoformat(f"{year}-{_MONTHS.index(month) // 3 + 1:02}-{day}T{clock}+00:00")
        except ValueError:
            return
        ahead = date_time.timestamp() - time.time()
        # The header has whole seconds, so ignore small differences.
        self._ahead = ahead if abs(ahead) > _CLOCK_TOLERANCE_SECONDS else 0.0

    async def _finish(self, response: http.Response) -> bytes:
        body = bytearray()
        async for chunk in response.chunks():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                response.close()
                raise ClusterError(
                    f"The API server's answer is longer than {MAX_ANSWER_BYTES // 1024**2} MiB.",
                    hint="Request less, e.g. with a label selector.",
                )
        connection = response.connection
        if connection.usable and not self._closed and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return bytes(body)

    def _take(self) -> http.Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def _headers(self) -> dict[str, str]:
        headers = {
            "Host": self._base.netloc.rpartition("@")[2],
            "Accept": "application/json, */*",
            "User-Agent": "pathways-jupyter",
            **self.cluster.headers,
        }
        if authorization := await self.cluster.credentials.authorization():
            headers["Authorization"] = authorization
        return headers

    def _target(self, path: str, query: Query | None) -> str:
        return self._base.path.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")

    def _refused(self, status: int, body: bytes, method: str, path: str, query: Query | None) -> ApiError:
        try:
            answer = json.loads(body)
        except ValueError:
            # A proxy or load balancer before the API server answered; its text is better than none.
            answer = {"message": " ".join(body[:300].decode(errors="replace").split())}
        known = answer if isinstance(answer, dict) else {}
        return problems.refused(
            status, known, method=method, path=path, query=query, hint=self.cluster.credentials.hint
        )

    # Retries.

    async def _persist(self, attempt: Callable[[], Awaitable[_T]], *, again: bool, patience: float | None = None) -> _T:
        """Run `attempt` until it succeeds, its error is final, or `patience` is over.

        `again` says whether the request may reach the server twice.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._patience if patience is None else patience)
        pause = _FIRST_PAUSE_SECONDS
        renewed = tried = False
        while True:
            try:
                return await attempt()
            except TimeoutError as error:
                # The server may be working on it, so only what may be repeated is sent again.
                if not again or not self._known or loop.time() >= deadline:
                    raise problems.unreachable(error, self.cluster.server) from error
            except Unreachable:
                # Nothing was sent, so even a POST is safe to retry; but only if this server has ever answered.
                if not self._known or loop.time() >= deadline:
                    raise
            except ConnectionLost:
                # The likely cause is a pooled connection that the server closed just now. A server that has never
                # answered gets one more attempt only.
                if not again or loop.time() >= deadline or (tried and not self._known):
                    raise
            except ApiError as error:
                # A token may have been revoked before its expiry. Renew it once; a second 401 is final.
                if error.status == 401 and not renewed and await self.cluster.credentials.renew():
                    renewed = True
                    continue
                if error.status not in _BUSY or loop.time() >= deadline:
                    raise
            tried = True
            # With jitter, so that the kernels of a hub do not all return at the same moment after an outage.
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _not_an_object(server: str) -> ClusterError:
    return ClusterError(
        f"The answer of {server} is not a Kubernetes object.",
        hint="Check that the kubeconfig's server is an API server.",
    )
