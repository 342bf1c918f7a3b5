"""API server: HTTPS on loopback, authentication, dispatch of requests to handlers, and expiry of Events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from aiohttp import web

from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.apiserver import api_errors, bodies, openapi
from pathways_jupyter.local.apiserver.access import answer_review, review_at
from pathways_jupyter.local.apiserver.api_discovery import discover
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.api_listener import Connection, Listener
from pathways_jupyter.local.apiserver.columns import seconds_of
from pathways_jupyter.local.apiserver.impersonation import acting_user
from pathways_jupyter.local.apiserver.object_handlers import Objects
from pathways_jupyter.local.apiserver.pki import server_context
from pathways_jupyter.local.apiserver.pod_subresources import Pods
from pathways_jupyter.local.apiserver.resources import EVENTS, PODS, Object
from pathways_jupyter.local.apiserver.resources import SERVICE_ACCOUNTS as ACCOUNTS
from pathways_jupyter.local.apiserver.route import CONNECTS, Route, find_route
from pathways_jupyter.local.apiserver.runtime import PodRuntime
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.users import (
    ANONYMOUS,
    HEALTH,
    SERVICE_ACCOUNT_PREFIX,
    Question,
    Rule,
    User,
    Users,
    question_of,
    refuse,
    with_bound_rules,
)
from pathways_jupyter.local.connection_bounds import STREAM_IDLE_SECONDS

ADMIN = "pathways-local-admin"
SERVICE_ACCOUNTS = "system:serviceaccounts"
"""The group of pods, whose requests do not keep a cluster alive."""
_DISCOVERY = {"nonResourceURLs": ["/api*", "/openapi*", "/version", *HEALTH], "verbs": ["get"]}
_TOKEN_ID = "authentication.kubernetes.io/credential-id"
_TOKEN_SECONDS = 3600
_SHORTEST_TOKEN_SECONDS = 600
_STOP_SECONDS = 2.0
_log = logging.getLogger(__name__)


class ApiServer:
    """The Kubernetes API over one store.

    Args:
      store: The cluster's state; it outlives the server.
      runtime: Runs the pods; the kubelet.
      directory: Where certificates and tokens are kept, made by :meth:`start` where they are missing; a later server on
        the same directory has the same ones.
      port: The port on 127.0.0.1; 0 takes a free one.
      stream_idle_seconds: How long a port-forward or an exec may be without a message before it is cut.
    """

    def __init__(
        self,
        store: Store,
        runtime: PodRuntime,
        *,
        directory: Path,
        port: int = 0,
        stream_idle_seconds: float = STREAM_IDLE_SECONDS,
    ) -> None:
        self._store = store
        self._directory = directory
        self._users = Users(directory / "tokens.json")
        self._objects = Objects(store)
        self._pods = Pods(store, runtime, idle_seconds=stream_idle_seconds)
        self._port = port
        self._listener: Listener | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._connections: web.Server | None = None
        self._answering: set[asyncio.Task[object]] = set()
        self.in_use = 0
        """Requests in progress, watches and tunnels included; those of pods do not count."""
        self.last_used = 0.0
        """When such a request last began or ended, in the event loop's time."""
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

    def add_token(
        self,
        name: str,
        rules: Sequence[Rule] | None = None,
        groups: Sequence[str] = (),
        extra: Mapping[str, Sequence[str]] | None = None,
    ) -> str:
        """Return a token for a user called `name`; the same one each time for the same arguments.

        Args:
          rules: What its bearer may do, in RBAC's terms; None for everything.
          groups: What groups its bearer is in.
          extra: What else is known of its bearer.
        """
        return self._users.add(name, rules, groups, extra)

    def add_account_token(
        self, namespace: str, account: str, extra: Mapping[str, Sequence[str]], expires: float | None = None
    ) -> str:
        """Return a token for a service account; what it may do beyond discovery comes from roles and their bindings."""
        groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")
        return self._users.add(f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{account}", [_DISCOVERY], groups, extra, expires)

    def revoke_tokens(self, key: str, value: str) -> None:
        """Revoke every token whose `extra` has `value` under `key`."""
        self._users.revoke(key, value)

    async def start(self) -> None:
        """Start to listen.

        Raises:
          LocalClusterError: The port is taken.
        """
        context = server_context(self._directory)
        self._connections = web.Server(self._handle, handler_cancellation=True)
        self.last_used = asyncio.get_running_loop().time()
        try:
            self._listener = Listener(self._port, context, self._connections)
        except OSError as error:
            raise LocalClusterError(
                f"The embedded cluster's API cannot listen on 127.0.0.1:{self._port}: {error}.",
                hint="Stop the process that listens there, or end the embedded cluster and start it again.",
            ) from error
        self._port = self._listener.port
        self._expiring = asyncio.create_task(keep_expiring(self._store))

    async def stop(self) -> None:
        """Stop listening and drop every connection at once, whatever it is doing."""
        if self._listener is None or self._connections is None:
            return
        await self._listener.close()
        if self._expiring is not None:
            self._expiring.cancel()
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
        self._listener = self._connections = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            return await self._answer(request)
        except StatusError as error:
            response = bodies.refusal(error)
            if error.status == 401 or "Authorization" not in request.headers:
                # Kept open, such connections would use up the descriptors that clients with a token need.
                response.force_close()
            return response
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            _log.exception("%s %s failed", request.method, request.path)
            text = f"Internal error occurred: {type(error).__name__}"
            return bodies.refusal(StatusError(text, status=500, reason="InternalError"))
        finally:
            self._answering.discard(task)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        user = self._users.who(request.headers.get("Authorization", ""))
        if user is None:
            raise api_errors.unauthorized()
        if user is not ANONYMOUS:
            cast("Connection", request.protocol).authenticated()
        keeps_alive = user is not ANONYMOUS and SERVICE_ACCOUNTS not in user.groups
        with self._in_use() if keeps_alive else contextlib.nullcontext():
            return await self._serve(request, acting_user(request.headers, user, self._users, self._store))

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        self.in_use += 1
        self.last_used = loop.time()
        try:
            yield
        finally:
            self.in_use -= 1
            self.last_used = loop.time()

    async def _serve(self, request: web.BaseRequest, user: User) -> web.StreamResponse:
        path = request.path
        review = review_at(path)
        if review is not None and request.method == "POST":
            # Anyone with a token may ask about themselves.
            if user is ANONYMOUS or not review.resource.kind.startswith("Self"):
                self._authorize(user, review)
            asked = await bodies.read_object(request)
            return bodies.answer(answer_review(review, user, asked, self._users, self._store), status=201)
        route = find_route(self._store.resources, request.method, path, request.query)
        if route is None:
            if user is ANONYMOUS and not user.may(Question(request.method.lower(), path=path)):
                raise api_errors.forbidden(
                    f'forbidden: User "{user.name}" cannot {request.method.lower()} path "{path}"'
                )
            return self._document(request)
        self._authorize(user, route)
        if route.subresource == "token":
            return await self._request_token(request, route)
        if route.resource.key == PODS.key and route.subresource not in ("", "status"):
            return await self._pods.serve(request, route)
        return await self._objects.serve(request, route)

    async def _request_token(self, request: web.BaseRequest, route: Route) -> web.Response:
        asked = await bodies.read_object(request)
        self._store.record(ACCOUNTS, route.namespace, route.name)
        spec = asked.setdefault("spec", {})
        seconds = spec.setdefault("expirationSeconds", _TOKEN_SECONDS)
        if not isinstance(seconds, int) or seconds < _SHORTEST_TOKEN_SECONDS:
            why = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
            raise api_errors.invalid(route.resource, route.name, [("spec.expirationSeconds", why)])
        if spec.get("boundObjectRef"):
            raise api_errors.bad_request("the embedded cluster does not bind tokens to objects")
        expires = time.time() + seconds
        token = self.add_account_token(route.namespace, route.name, {_TOKEN_ID: (str(uuid.uuid4()),)}, expires)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expires))
        return bodies.answer({**asked, "status": {"token": token, "expirationTimestamp": stamp}}, status=201)

    def _authorize(self, user: User, route: Route) -> None:
        """A WebSocket begins as a GET yet does what a POST does, so it needs the right to both."""
        verbs = [route.verb]
        if route.subresource in CONNECTS and route.verb == "get":
            verbs.append("create")
        for verb in verbs:
            question = question_of(route, verb)
            self.audit(user, question)
            if not user.may(question) and not with_bound_rules(self._store, user).may(question):
                raise refuse(user, route, verb)

    def _document(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise api_errors.no_such_resource()
        path = request.path
        if path in HEALTH:
            return web.Response(text="ok")
        if path == "/openapi/v2":
            if "proto-openapi.spec.v2" in request.headers.get("Accept", ""):
                body = openapi.version_2_as_protobuf()
                return web.Response(body=body, headers={"Content-Type": openapi.PROTOBUF})
            found: Object | None = openapi.VERSION_2
        elif path.startswith("/openapi/"):
            found = openapi.document(self._store.resources, path)
        else:
            found = discover(self._store.resources, path)
        if found is None:
            raise api_errors.no_such_resource()
        return bodies.answer(found)


_EVENTS_KEPT_SECONDS = 3600.0
"""As long as a real API server keeps them."""
_SWEEP_SECONDS = 60.0


def expire_events(store: Store, now: float) -> int:
    """Remove the events last seen more than :data:`_EVENTS_KEPT_SECONDS` before `now`; return their number."""
    old = []
    for event in store.list(EVENTS):
        stamps = (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
        seen = next((seconds for stamp in stamps if (seconds := seconds_of(stamp)) is not None), now)
        if seen < now - _EVENTS_KEPT_SECONDS:
            old.append(event)
    for event in old:
        store.delete(EVENTS, event["metadata"]["namespace"], event["metadata"]["name"], grace=0)
    return len(old)


async def keep_expiring(store: Store) -> None:
    """Call :func:`expire_events` periodically, until cancelled."""
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        expire_events(store, time.time())
