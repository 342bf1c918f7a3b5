"""The REST routes: each checks its request, calls the hub, and returns the result or the error as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, TypeVar, cast

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.iostream import StreamClosedError

from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError, PathwaysError, ServiceError, SessionError
from pathways_jupyter.base.hints import Face
from pathways_jupyter.multihost.errors import UnknownRun
from pathways_jupyter.server import hub as hubs
from pathways_jupyter.server import quickstart, request_checks, scope
from pathways_jupyter.server.hub import Hub
from pathways_jupyter.session.protocol import Method

RESOURCE = "pathways"
"""The name of these routes' resource in authorizers."""

_H = TypeVar("_H", bound="Handler")


def route(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
    """Wrap a handler's method: require login and authorization, and send its result or error as JSON."""

    @functools.wraps(method)
    async def wrapper(self: _H, *words: str) -> None:
        try:
            answer = await method(self, *words)
        except PathwaysError as error:
            self.refuse(error)
        else:
            if answer is not None:
                await self.finish(json.dumps(answer, allow_nan=False))

    return cast("Callable[..., Awaitable[None]]", web.authenticated(authorized(wrapper)))


class Handler(request_checks.SameSiteMixin, APIHandler):  # type: ignore[misc]  # jupyter_server comes without types
    """Base class of all routes."""

    auth_resource = RESOURCE

    def initialize(self, hub: Hub) -> None:
        """Called by tornado."""
        self.hub = hub

    async def prepare(self) -> None:
        """Called by tornado before the request's method."""
        await super().prepare()
        # Jupyter requires the XSRF token for writing requests only. Here, reading uses the user's credentials too.
        if not self._finished and self.request.method in {"GET", "HEAD"}:
            self.check_xsrf_cookie()

    def check_referer(self) -> bool:
        """Reject a Referer as a substitute for the XSRF token, which Jupyter accepts for GET requests.

        Any page of this server sends one, e.g. an opened HTML file or a link in a notebook's output.
        """
        return False

    def refuse(self, error: PathwaysError) -> None:
        """Send `error` as the answer."""
        self.set_status(status_of(error))
        self.finish(json.dumps(error.to_json(Face.SIDEBAR), allow_nan=False))

    def body(self, *names: str) -> dict[str, Any]:
        """Return the request's JSON object, which may contain `names` only.

        Raises:
          ConfigError: The body is not such an object.
        """
        return request_checks.known(request_checks.json_object(self.request.body), names)

    def query(self, *names: str) -> dict[str, Any]:
        """Return the request's query, which may contain `names` only, each once.

        Raises:
          ConfigError: The query contains something else.
        """
        return request_checks.known(request_checks.query(self.request), names)


def status_of(error: PathwaysError) -> int:
    """Return the HTTP status of `error`: 4xx if the user must act, 502 if the cluster failed."""
    if isinstance(error, ApiError):
        return error.status if 400 <= error.status < 500 and error.status != 401 else 502
    kinds = ((ConfigError, 400), (SessionError, 404), (UnknownRun, 404), (ServiceError, 409), (ClusterError, 502))
    for kind, status in kinds:
        if isinstance(error, kind):
            return status
    return 409


def scope_in(given: Mapping[str, Any]) -> scope.Scope:
    """Return the scope from a request's parameters.

    Raises:
      ConfigError: The scope is invalid.
    """
    return scope.parse({name: value for name, value in given.items() if name in scope.NAMES})


class VersionHandler(Handler):
    """The version, for a page to check that it matches this server."""

    @route
    async def get(self) -> Any:
        """Return the version of the server extension."""
        self.query()
        return {"version": version("pathways_jupyter")}


class ContextsHandler(Handler):
    """The clusters that a notebook can connect to."""

    @route
    async def get(self) -> Any:
        """Return contexts, profiles, and whether the embedded cluster is running."""
        self.query()
        return await asyncio.to_thread(hubs.contexts)


class ServicesHandler(Handler):
    """The services that a notebook can connect to."""

    @route
    async def get(self) -> Any:
        """Return the services of a cluster with their free slices."""
        return {"services": await self.hub.services(scope_in(self.query(*scope.NAMES)))}


class SessionHandler(Handler):
    """The actions on a session."""

    @route
    async def post(self, session: str, action: str) -> Any:
        """Disconnect or reconnect."""
        self.query()
        self.body()
        result = await self.hub.act(session, Method(action))
        return {"result": result}


class SweepHandler(Handler):
    """Removal of what dead sessions left."""

    @route
    async def post(self) -> Any:
        """Remove stale proxies of this user, or only list them."""
        self.query()
        given = self.body(*scope.NAMES, "dry_run")
        dry_run = scope.flag("dry_run", given.get("dry_run", True))
        return {"removed": await self.hub.sweep(scope_in(given), dry_run=dry_run)}


class StreamHandler(Handler):
    """Base class of routes that stream lines of text."""

    _reading: asyncio.Task[None] | None = None

    async def stream(self, lines: AsyncGenerator[str, None]) -> None:
        """Send `lines` as they come, until they end or the client disconnects.

        Raises:
          PathwaysError: There is no such log; raised by `lines` before the first one.
        """
        self._reading = asyncio.create_task(self._send(lines))
        with contextlib.suppress(asyncio.CancelledError, StreamClosedError):
            await self._reading

    async def _send(self, lines: AsyncGenerator[str, None]) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        # Otherwise a reverse proxy that buffers responses would delay a followed log.
        self.set_header("X-Accel-Buffering", "no")
        async with contextlib.aclosing(lines):
            async for line in lines:
                self.write(line + "\n")
                await self.flush()
        await self.finish()

    def on_connection_close(self) -> None:
        """Called by tornado when the client disconnects."""
        super().on_connection_close()
        if self._reading is not None:
            self._reading.cancel()


class LogsHandler(StreamHandler):
    """Logs of pods."""

    @route
    async def get(self) -> Any:
        """Stream a log as text; a followed one goes on until the container ends."""
        given = self.query(*scope.NAMES, "pod", "container", "follow")
        if not given.get("pod"):
            raise ConfigError("The name of the pod is missing.", hint="Add ?pod=NAME.")
        place, pod = scope_in(given), request_checks.object_name(given["pod"], "pod")
        container = request_checks.container_name(given["container"]) if given.get("container") else ""
        follow = scope.flag("follow", given.get("follow") or "false")
        await self.stream(self.hub.log(place, pod, container=container, follow=follow))


class EmbeddedHandler(Handler):
    """The embedded cluster of this machine."""

    @route
    async def post(self) -> Any:
        """Start it, unless it runs already; return the number of its slices by type, once all are ready."""
        self.query()
        self.body()
        return {"slices": await asyncio.to_thread(scope.start_embedded_cluster)}


class QuickstartHandler(Handler):
    """The quickstart notebook."""

    @route
    async def post(self) -> Any:
        """Put the notebook into the user's files, unless it is there already."""
        self.query()
        self.body()
        return {"path": await quickstart.place(self.contents_manager)}
