"""The REST routes: each one asks the hub, and says what went wrong in a way that a person can act on."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, TypeVar, cast

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.iostream import StreamClosedError

from pathways_jupyter.errors import ApiError, ClusterError, ConfigError, PathwaysError, ServiceError, SessionError
from pathways_jupyter.server import hub as hubs
from pathways_jupyter.server import quickstart, scope
from pathways_jupyter.server.hub import Hub
from pathways_jupyter.session.protocol import Method

RESOURCE = "pathways"
"""What an authorizer is asked about."""

_H = TypeVar("_H", bound="Handler")


def route(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
    """For users who are logged in and authorized: what `method` returns as JSON, or the error that it raises."""

    @functools.wraps(method)
    async def wrapper(self: _H, *words: str) -> None:
        try:
            answer = await method(self, *words)
        except PathwaysError as error:
            self.refuse(error)
        else:
            if answer is not None:
                await self.finish(json.dumps(answer))

    return cast("Callable[..., Awaitable[None]]", web.authenticated(authorized(wrapper)))


class Handler(APIHandler):  # type: ignore[misc]  # jupyter_server comes without types
    """What all routes have in common."""

    auth_resource = RESOURCE

    def initialize(self, hub: Hub) -> None:
        """Called by tornado."""
        self.hub = hub

    def refuse(self, error: PathwaysError) -> None:
        """Answers with `error` instead of a result."""
        self.set_status(status_of(error))
        self.finish(json.dumps({"message": str(error), "hint": error.hint}))

    def body(self) -> dict[str, Any]:
        """The request's JSON object.

        Raises:
          ConfigError: It is something else.
        """
        try:
            value = json.loads(self.request.body or b"{}")
        except ValueError as error:
            raise ConfigError("The request is not JSON.", hint="Reload the page, and try again.") from error
        if not isinstance(value, dict):
            raise ConfigError("The request is not a JSON object.", hint="Reload the page, and try again.")
        return value

    def query(self) -> dict[str, str]:
        """The request's query, each name once."""
        return {name: self.get_query_argument(name) for name in self.request.query_arguments}


def status_of(error: PathwaysError) -> int:
    """The HTTP status that says whose turn it is: 4xx the user's, 502 the cluster's."""
    if isinstance(error, ApiError):
        return error.status if 400 <= error.status < 500 and error.status != 401 else 502
    for kind, status in ((ConfigError, 400), (SessionError, 404), (ServiceError, 409), (ClusterError, 502)):
        if isinstance(error, kind):
            return status
    return 409


class VersionHandler(Handler):
    """Tells a page whether it fits this server."""

    @route
    async def get(self) -> Any:
        """The version of the server extension."""
        return {"version": version("pathways_jupyter")}


class ContextsHandler(Handler):
    """Where one may connect to."""

    @route
    async def get(self) -> Any:
        """Contexts, profiles, and whether the embedded cluster runs."""
        return await asyncio.to_thread(hubs.contexts)


class ServicesHandler(Handler):
    """What one may connect to."""

    @route
    async def get(self) -> Any:
        """The services of a cluster, with what each has free."""
        return {"services": await self.hub.services(scope.parse(self.query()))}


class SessionHandler(Handler):
    """What one may do with a session."""

    @route
    async def post(self, session: str, action: str) -> Any:
        """Disconnects or reconnects."""
        result = await self.hub.act(session, Method(action))
        return {"result": result}


class SweepHandler(Handler):
    """Cleaning up."""

    @route
    async def post(self) -> Any:
        """Removes stale proxies of this user, or only tells."""
        given = self.body()
        dry_run = given.get("dry_run", True)
        if not isinstance(dry_run, bool):
            raise ConfigError("dry_run must be true or false.", hint="Reload the page, and try again.")
        return {"removed": await self.hub.sweep(scope.parse(given), dry_run=dry_run)}


class LogsHandler(Handler):
    """Logs of pods."""

    _reading: asyncio.Task[None] | None = None

    @route
    async def get(self) -> Any:
        """Streams a log as text; goes on until the container ends when it is followed."""
        given = self.query()
        pod = given.get("pod", "")
        if not pod:
            raise ConfigError("Which pod?", hint="Add ?pod=NAME.")
        place = scope.parse(given)
        follow = given.get("follow", "").lower() == "true"
        self._reading = asyncio.create_task(self._stream(place, pod, given.get("container", ""), follow))
        with contextlib.suppress(asyncio.CancelledError, StreamClosedError):
            await self._reading

    async def _stream(self, place: scope.Scope, pod: str, container: str, follow: bool) -> None:
        lines = self.hub.log(place, pod, container=container, follow=follow)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        # A reverse proxy that collects an answer before it hands it on would hold back a followed log.
        self.set_header("X-Accel-Buffering", "no")
        async with contextlib.aclosing(lines):
            async for line in lines:
                self.write(line + "\n")
                await self.flush()
        await self.finish()

    def on_connection_close(self) -> None:
        """The reader went away."""
        super().on_connection_close()
        if self._reading is not None:
            self._reading.cancel()


class QuickstartHandler(Handler):
    """The quickstart notebook."""

    @route
    async def post(self) -> Any:
        """Puts the notebook where the user's files are, unless it is there already."""
        return {"path": await quickstart.place(self.contents_manager)}
