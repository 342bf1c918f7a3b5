"""API server: HTTPS on loopback, authentication and dispatch of requests to handlers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.apiserver import api_errors, bodies
from pathways_jupyter.local.apiserver.access import (
    ANONYMOUS,
    HEALTH,
    REVIEW_PATHS,
    SERVICE_ACCOUNTS,
    Question,
    User,
    Users,
    answer_review,
    may,
    refusal,
)
from pathways_jupyter.local.apiserver.api_discovery import OPENAPI_PROTOBUF, discover, openapi_v2_as_protobuf
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.credentials import server_context
from pathways_jupyter.local.apiserver.object_handlers import serve_objects
from pathways_jupyter.local.apiserver.pod_subresources import PodRuntime, serve_pod_subresource
from pathways_jupyter.local.apiserver.resources import PODS, VISIBLE_QUEUES, Object
from pathways_jupyter.local.apiserver.route import CONNECTS, ObjectRequest, find_route
from pathways_jupyter.local.apiserver.store import Store

ADMIN = "pathways-local-admin"
_BACKLOG = 1024
_KEEP_ALIVE_SECONDS = 3600.0
_STOP_SECONDS = 2.0
_STREAM_IDLE_SECONDS = 4 * 3600.0
"""The default of the kubelet's ``streamingConnectionIdleTimeout``."""
_log = logging.getLogger(__name__)


class ApiServer:
    """The Kubernetes API over one store.

    Args:
      store: The cluster's state; it outlives the server.
      runtime: Runs the pods; the kubelet.
      directory: Where the certificates are kept, made by :meth:`start` where they are missing.
      port: The port on 127.0.0.1; 0 takes a free one.
      stream_idle_seconds: How long a port-forward or an exec may be without a message before it is cut.
      pending: Returns what waits in a queue, by namespace and name; see Kueue's visibility API.
    """

    def __init__(
        self,
        store: Store,
        runtime: PodRuntime,
        *,
        directory: Path,
        port: int = 0,
        stream_idle_seconds: float = _STREAM_IDLE_SECONDS,
        pending: Callable[[Store, str, str], Object] | None = None,
    ) -> None:
        self._store = store
        self._directory = directory
        self.users = Users()
        self._runtime = runtime
        self._stream_idle_seconds = stream_idle_seconds
        self._pending = pending
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: web.Server | None = None
        self._answering: set[asyncio.Task[object]] = set()
        self.in_use = 0
        """Requests in progress, watches and tunnels included; those of pods do not count."""
        self.last_used = 0.0
        """Time at which such a request last began or ended, in the event loop's time."""
        self.audit: Callable[[User, Question], None] = lambda user, question: None
        """Called with every permission that a request needs, before it is checked."""

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """The ``server`` of a kubeconfig."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca(self) -> Path:
        """The certificate authority by which clients verify this server."""
        return self._directory / "ca.crt"

    @property
    def connections(self) -> int:
        """The number of connected clients."""
        return 0 if self._connections is None else len(self._connections.connections)

    async def start(self) -> None:
        """Start to listen.

        Raises:
          LocalClusterError: The port is taken.
        """
        context = server_context(self._directory)
        self._connections = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            # Like the real API server, which does not decompress a body, and then finds that it is not JSON.
            auto_decompress=False,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
        )
        loop = asyncio.get_running_loop()
        self.last_used = loop.time()
        try:
            self._server = await loop.create_server(
                self._connections, "127.0.0.1", self._port, ssl=context, backlog=_BACKLOG
            )
        except OSError as error:
            raise LocalClusterError(
                f"The embedded cluster's API cannot listen on 127.0.0.1:{self._port}: {error}.",
                hint="Stop the process that listens there, or end the embedded cluster and start it again.",
            ) from error
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every connection at once, whatever it is doing."""
        if self._server is None or self._connections is None:
            return
        self._server.close()
        for connection in self._connections.connections:
            if connection.transport is not None:
                connection.transport.abort()
        for task in list(self._answering):
            task.cancel()
        if self._answering:
            await asyncio.wait(list(self._answering), timeout=_STOP_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._connections.shutdown(0)
        self._server = self._connections = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            return await self._answer(request)
        except StatusError as error:
            response = bodies.answer(error.to_object(), status=error.status)
            if error.status == 401 or "Authorization" not in request.headers:
                # Kept open, such connections would use up the descriptors that clients with a token need.
                response.force_close()
            return response
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            _log.exception("%s %s failed", request.method, request.path)
            text = f"Internal error occurred: {type(error).__name__}"
            return bodies.answer(StatusError(500, text).to_object(), status=500)
        finally:
            self._answering.discard(task)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        user = self.users.authenticate(request.headers.get("Authorization", ""))
        if user is None:
            raise StatusError(401, "Unauthorized")
        if user is ANONYMOUS:
            return await self._serve(request, user)
        if any(header.lower().startswith("impersonate-") for header in request.headers):
            # Else the request would do what its real sender may.
            raise api_errors.bad_request("the embedded cluster does not serve requests on behalf of another user")
        if SERVICE_ACCOUNTS in user.groups:
            return await self._serve(request, user)
        loop = asyncio.get_running_loop()
        self.in_use += 1
        self.last_used = loop.time()
        try:
            return await self._serve(request, user)
        finally:
            self.in_use -= 1
            self.last_used = loop.time()

    async def _serve(self, request: web.BaseRequest, user: User) -> web.StreamResponse:
        path = request.path
        review = REVIEW_PATHS.get(path.rstrip("/"))
        if review is not None and request.method == "POST":
            # Anyone with a token may ask about themselves.
            if user is ANONYMOUS:
                self._authorize(user, review)
            sent = await bodies.read_object(request)
            return bodies.answer(answer_review(review, user, sent, self._store), status=201)
        route = find_route(self._store.resources, request.method, path, request.query)
        if route is None:
            verb = request.method.lower()
            if user is ANONYMOUS and not may(self._store, user, Question(verb, path=path)):
                raise StatusError(403, f'forbidden: User "{user.name}" cannot {verb} path "{path}"')
            if request.method != "GET":
                raise api_errors.no_such_resource()
            if path in HEALTH:
                return web.Response(text="ok")
            if path == "/openapi/v2" and "proto-openapi.spec.v2" in request.headers.get("Accept", ""):
                return web.Response(body=openapi_v2_as_protobuf(), headers={"Content-Type": OPENAPI_PROTOBUF})
            document = discover(self._store.resources, path)
            if document is None:
                raise api_errors.no_such_resource()
            return bodies.answer(document)
        self._authorize(user, route)
        if route.resource.key == VISIBLE_QUEUES.key:
            if self._pending is None or not route.subresource:
                raise api_errors.no_such_resource()
            return bodies.answer(self._pending(self._store, route.namespace, route.name))
        if route.resource.key == PODS.key and route.subresource not in ("", "status"):
            seconds = self._stream_idle_seconds
            return await serve_pod_subresource(request, self._store, self._runtime, route, idle_seconds=seconds)
        return await serve_objects(request, self._store, route)

    def _authorize(self, user: User, route: ObjectRequest) -> None:
        """Require the right to both GET and POST: a WebSocket begins as the one and does what the other does."""
        verbs = [route.verb]
        if route.subresource in CONNECTS and route.verb == "get":
            verbs.append("create")
        for verb in verbs:
            question = Question(verb, route.resource.group, route.target, route.namespace, route.name)
            self.audit(user, question)
            if not may(self._store, user, question):
                raise refusal(user, route, verb)
