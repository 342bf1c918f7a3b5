"""Client for one Kubernetes API server, on plain JSON.

The `kubernetes` package sends the requests (see `library`); this module adds the errors, and retries where that is
safe (see `retries`). A server that has never answered is not retried by default.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, ClusterError
from pathways_jupyter.kube import answers, problems
from pathways_jupyter.kube.clock import RoundTrip, ServerClock, boot_seconds
from pathways_jupyter.kube.retries import Retries
from pathways_jupyter.kube.websocket import UploadRate, WebSocket

if TYPE_CHECKING:
    from types import ModuleType

    from aiohttp import ClientResponse

    from pathways_jupyter.kube.cluster_access import Cluster
    from pathways_jupyter.kube.library import Api, Refused

Json = dict[str, Any]
Query = Mapping[str, str]

ANSWER_SECONDS = 30.0
"""Longest time for the server's answer to one attempt."""
PATIENCE_SECONDS = 15.0
"""Default time for which a request is retried."""
MAX_ANSWER_BYTES = 512 * 1024 * 1024
"""Longest body that is read into memory."""

# Idempotent as this package uses them: doing one twice has the same result.
_SAME_TIME_SECONDS = 5
"""More than the whole seconds of the answers, and one that was on its way for long, can be wrong by."""
_IDEMPOTENT = {"GET", "PUT", "PATCH", "DELETE"}

# `library`. Not sys.modules, which has it already while another thread is still importing it.
_loaded: ModuleType | None = None


class Client:
    """Client of one API server; use it as an async context manager, in one event loop.

    Args:
      cluster: The API server and its credentials, from :func:`pathways_jupyter.kube.auth.load`.
      patience: Seconds for which a request is retried while the server cannot be reached, once it has answered at all.
      unknown: The same for a server that has never answered and refuses or resets connections.
    """

    def __init__(self, cluster: Cluster, *, patience: float = PATIENCE_SECONDS, unknown: float = 0.0) -> None:
        self.cluster = cluster
        self._api: Api | None = None
        # With connections that nothing new is sent on: those of an older client certificate, and those from before a
        # silence. Closed when nothing uses any, so that no stream is cut off.
        self._outdated: list[Api] = []
        self._closed = False
        # Streams and WebSockets that are open, and requests in progress.
        self._in_use = 0
        self._closing: asyncio.Task[None] | None = None
        # asyncio keeps only weak references to tasks.
        self._leaving: list[asyncio.Task[None]] = []
        self._retries = Retries(lambda: self.cluster, patience, unknown)
        self._clock = ServerClock()
        self._clock_ahead = 0
        self.last_received = boot_seconds()
        """Time of the last byte from the server, in :func:`boot_seconds`; at first when this was made."""
        self.round_trip = RoundTrip()
        self.upload_rate = UploadRate()
        self.answered: Counter[tuple[str, int]] = Counter()
        """Number of requests by method and status of the answer."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if self._closing is not None:
            await asyncio.wait({self._closing})

    @property
    def namespace(self) -> str:
        """The context's default namespace."""
        return self.cluster.namespace

    def now(self) -> float:
        """Return the API server's time, in seconds since the epoch; this machine's time before the first answer."""
        return self._clock.now()

    @property
    def clock_ahead(self) -> int:
        """Seconds by which this machine's clock is ahead of the API server's; 0 for fewer than its answers show."""
        ahead = time.time() - self._clock.now()
        # Stays as it is while it only wavers, so that what is shown does not change with it.
        if abs(ahead - self._clock_ahead) > _SAME_TIME_SECONDS:
            self._clock_ahead = round(ahead)
        return self._clock_ahead

    def close(self) -> None:
        """Close all connections, once the requests and streams in progress have ended."""
        self._closed = True
        for leaving in self._leaving:
            leaving.cancel()
        if self._api is not None and not self._in_use:
            self._outdated.append(self._api)
            self._api = None
        self._close_outdated()

    def move(self, cluster: Cluster) -> None:
        """Send what follows to `cluster`, which is the same one at another address, or with other credentials.

        What is open at the previous address ends after a while, as if the connection had been lost.
        """
        self.cluster = cluster
        if self._api is not None:
            self._leaving.append(asyncio.get_running_loop().create_task(_close_later(self._api)))
            self._api = None

    def leave_connections(self) -> None:
        """Send what follows on new connections; called when an open one is found silent.

        Those that wait for their next request are probably as dead, and each would be noticed only by the time that its
        request takes. What is under way continues.
        """
        if self._api is not None:
            self._outdated.append(self._api)
            self._api = None
            self._close_outdated()

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
        again = method in _IDEMPOTENT if repeat is None else repeat

        async def attempt() -> bytes:
            # Outside of the timeout: a slow credential plugin must not look like an API server that does not answer.
            api, request = await self._prepared(method, path, query, body=body, content_type=content_type)
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._send(api, request)
                answer = await self._read(response)
            if response.status >= 400:
                raise self._refused(response, answer, method, path, query)
            return answer

        with self._using():
            answer = await self._retries.run(attempt, again=again)
        return answers.decode(answer, self.cluster.server)

    async def open(self, connections: int) -> None:
        """Open connections, so that later requests at once need no handshakes: each with a request for the version."""
        await asyncio.gather(*(self.get("/version") for _ in range(connections)), return_exceptions=True)

    async def open_unauthenticated(self, connections: int) -> None:
        """Open so many connections for later requests, or use the open ones once more, without any credential plugin.

        Each carries a request without a token, once: any answer will do, also one that refuses it.

        Raises:
          ClusterError: The server could not be reached, or a connection was lost.
        """

        async def use_one(api: Api) -> None:
            request = await api.prepare("GET", "/livez", anonymous=True)
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._read(await api.send(request))

        with self._using():
            api = await self._opened()
            async with tasks.group() as group:
                for _ in range(connections):
                    group.create_task(use_one(api))

    async def get(self, path: str, *, query: Query | None = None) -> Json:
        """GET an object or a list."""
        return await self.request("GET", path, query=query)

    async def post(self, path: str, body: Mapping[str, Any]) -> Json:
        """POST an object."""
        return await self.request("POST", path, body=body)

    async def delete(self, path: str, *, body: Mapping[str, Any] | None = None) -> Json:
        """DELETE an object; `body` is its DeleteOptions."""
        return await self.request("DELETE", path, body=body)

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

        async def attempt() -> ClientResponse:
            api, request = await self._prepared("GET", path, query)
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._send(api, request)
                if response.status < 400:
                    return response
                body = await self._read(response)
            raise self._refused(response, body, "GET", path, query)

        with self._using():
            response = await self._retries.run(attempt, again=True, patience=patience)
            try:
                yield self._chunks(response)
            finally:
                # The rest of the body is still on its way, so the connection cannot be used again.
                response.close()

    async def websocket(
        self, path: str, *, protocols: tuple[str, ...], query: Query | None = None, patience: float | None = None
    ) -> WebSocket:
        """Open a WebSocket with one of `protocols`. The caller has to close it.

        Args:
          patience: Seconds for which to retry while the server cannot be reached, instead of the client's own.

        Raises:
          ApiError: The server refused to.
          ClusterError: It could not be reached.
        """
        library = await _library()

        async def attempt() -> WebSocket:
            api, request = await self._prepared("GET", path, query)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    opened = await api.connect(request, protocols)
            except library.Refused as refusal:
                self._retries.has_answered = True
                raise self._refused(refusal, refusal.body, problems.UPGRADE, path, query) from None
            self._retries.has_answered = True
            if opened.protocol not in protocols:
                await opened.close()
                raise ClusterError(
                    f"The API server supports none of the protocols {', '.join(protocols)}.",
                    hint="Check the cluster's version.",
                )
            # Until the socket has ended: close() of this client waits for it.
            self._in_use += 1
            return WebSocket(opened, self._done, self.leave_connections, self.round_trip, self.upload_rate)

        with self._using():
            return await self._retries.run(attempt, again=True, patience=patience)

    # One attempt.

    async def _prepared(
        self, method: str, path: str, query: Query | None, **content: Any
    ) -> tuple[Api, tuple[Any, ...]]:
        """Return a request with current credentials, and whose connections to send it on.

        A client certificate that has just been renewed is on new connections only.
        """
        api = await self._opened()
        request = await api.prepare(method, path, query, **content)
        if api is self._api and api.is_outdated:
            self.leave_connections()
        return await self._opened(), request

    async def _opened(self) -> Api:
        if self._api is None:
            library = await _library()
        if self._api is None:
            self._api = library.Api(self.cluster)
        return self._api

    @contextmanager
    def _using(self) -> Iterator[None]:
        self._in_use += 1
        try:
            yield
        finally:
            self._done()

    def _done(self) -> None:
        self._in_use -= 1
        if self._closed:
            self.close()
        self._close_outdated()

    def _close_outdated(self) -> None:
        if not self._in_use and self._outdated:
            # aiohttp closes in a coroutine, and callers of this one are not all coroutines.
            self._closing = asyncio.get_running_loop().create_task(_close(*self._outdated))
            self._outdated.clear()

    async def _send(self, api: Api, request: tuple[Any, ...]) -> ClientResponse:
        sent = boot_seconds()
        response = await api.send(request)
        self._retries.has_answered, self.last_received = True, boot_seconds()
        self.answered[response.method, response.status] += 1
        self._clock.correct(response.headers.get("Date", ""), sent)
        self.round_trip.add(sent)
        return response

    async def _read(self, response: ClientResponse) -> bytes:
        """Return the whole body, after which the connection can carry the next request."""
        body = bytearray()
        try:
            async for chunk in self._chunks(response):
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise ClusterError(
                        f"The API server's answer is longer than {MAX_ANSWER_BYTES // 1024**2} MiB.",
                        hint="Request less, e.g. with a label selector.",
                    )
        except BaseException:
            response.close()
            raise
        return bytes(body)

    async def _chunks(self, response: ClientResponse) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives.

        Raises:
          ConnectionLost: It ended too early.
        """
        library = await _library()
        try:
            async for chunk in response.content.iter_any():
                self.last_received = boot_seconds()
                yield chunk
        except library.READ_ERRORS as error:
            raise library.failure(error, self.cluster.server) from error

    def _refused(
        self, answered: ClientResponse | Refused, body: bytes, method: str, path: str, query: Query | None
    ) -> ApiError:
        try:
            answer = json.loads(body)
        except ValueError:
            # A proxy or load balancer before the API server answered; its text is better than none.
            answer = {"message": " ".join(body[:300].decode(errors="replace").split())}
        status = answer if isinstance(answer, dict) else {}
        error = problems.refused(
            answered.status, status, method=method, path=path, query=query, hint=self.cluster.credentials.hint
        )
        # API servers send seconds. A date, which a proxy in between may send, is not worth a second clock.
        after = answered.headers.get("Retry-After", "")
        error.retry_after = float(after) if after.isascii() and after.isdecimal() else 0.0
        return error


def preload() -> ModuleType:
    """Import the `kubernetes` package, which takes a few tenths of a second, before the first request has to."""
    global _loaded
    _loaded = importlib.import_module("pathways_jupyter.kube.library")
    return _loaded


async def _close(*apis: Api) -> None:
    # One after the other: the first step of the first is done even where the loop ends now, as a program may.
    for each in apis:
        await each.close()


async def _close_later(api: Api) -> None:
    try:
        # Requests that have just begun must not find their connections closed, which aiohttp reports as a misuse.
        await asyncio.sleep(ANSWER_SECONDS)
    finally:
        await api.close()


async def _library() -> ModuleType:
    # In a thread, because a server's event loop must not stand still meanwhile.
    return _loaded if _loaded is not None else await asyncio.to_thread(preload)
