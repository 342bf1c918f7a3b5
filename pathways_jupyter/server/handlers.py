"""The REST routes: each one checks its request, asks the hub, and reports failures so that a person can act on them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, TypeVar, cast

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.iostream import StreamClosedError

from pathways_jupyter.errors import ApiError, ClusterError, ConfigError, PathwaysError, ServiceError, SessionError
from pathways_jupyter.server import checks, quickstart, scope
from pathways_jupyter.server import hub as hubs
from pathways_jupyter.server.hub import Hub
from pathways_jupyter.session.protocol import Method

RESOURCE = "pathways"
"""The resource that authorizers know these routes by."""

_H = TypeVar("_H", bound="Handler")


def route(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
    """Answer users who are logged in and authorized with what `method` returns, as JSON, or with its error."""

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


class Handler(checks.SameSiteMixin, APIHandler):  # type: ignore[misc]  # jupyter_server comes without types
    """What all routes have in common."""

    auth_resource = RESOURCE

    def initialize(self, hub: Hub) -> None:
        """Called by tornado."""
        self.hub = hub

    async def prepare(self) -> None:
        """Called by tornado before the request's method."""
        await super().prepare()
        # Jupyter asks for the XSRF token where something is written. Here reading uses the user's credentials as well.
        if not self._finished and self.request.method in {"GET", "HEAD"}:
            self.check_xsrf_cookie()

    def check_referer(self) -> bool:
        """Refuse a Referer in place of an XSRF token, which Jupyter accepts from a request that reads.

        Any page of this server sends it, e.g. an HTML file that was opened, or a link in a notebook's output.
        """
        return False

    def refuse(self, error: PathwaysError) -> None:
        """Answer with `error` instead of a result."""
        self.set_status(status_of(error))
        self.finish(json.dumps({"message": str(error), "hint": error.hint}))

    def body(self, *names: str) -> dict[str, Any]:
        """Return the request's JSON object, in which only `names` may occur.

        Raises:
          ConfigError: It is something else.
        """
        return checks.known(checks.json_object(self.request.body), names)

    def query(self, *names: str) -> dict[str, Any]:
        """Return the request's query, in which only `names` may occur, each once.

        Raises:
          ConfigError: It holds something else.
        """
        return checks.known(checks.query(self.request), names)


def status_of(error: PathwaysError) -> int:
    """The HTTP status that says whose turn it is: 4xx the user's, 502 the cluster's."""
    if isinstance(error, ApiError):
        return error.status if 400 <= error.status < 500 and error.status != 401 else 502
    for kind, status in ((ConfigError, 400), (SessionError, 404), (ServiceError, 409), (ClusterError, 502)):
        if isinstance(error, kind):
            return status
    return 409


def scope_in(given: Mapping[str, Any]) -> scope.Scope:
    """Return the scope that is among the parameters of a request.

    Raises:
      ConfigError: It cannot be used.
    """
    return scope.parse({name: value for name, value in given.items() if name in scope.NAMES})


class VersionHandler(Handler):
    """Lets a page check whether it fits this server."""

    @route
    async def get(self) -> Any:
        """Return the version of the server extension."""
        self.query()
        return {"version": version("pathways_jupyter")}


class ContextsHandler(Handler):
    """The clusters that one may connect to."""

    @route
    async def get(self) -> Any:
        """Return contexts, profiles, and whether the embedded cluster runs."""
        self.query()
        return await asyncio.to_thread(hubs.contexts)


class ServicesHandler(Handler):
    """The services that one may connect to."""

    @route
    async def get(self) -> Any:
        """Return the services of a cluster, with what each has free."""
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


class LogsHandler(Handler):
    """Logs of pods."""

    _reading: asyncio.Task[None] | None = None

    @route
    async def get(self) -> Any:
        """Stream a log as text; a followed one goes on until the container ends."""
        given = self.query(*scope.NAMES, "pod", "container", "follow")
        if not given.get("pod"):
            raise ConfigError("Which pod?", hint="Add ?pod=NAME.")
        place, pod = scope_in(given), checks.pod_name(given["pod"])
        container = checks.container_name(given["container"]) if given.get("container") else ""
        follow = scope.flag("follow", given.get("follow") or "false")
        self._reading = asyncio.create_task(self._stream(place, pod, container, follow))
        with contextlib.suppress(asyncio.CancelledError, StreamClosedError):
            await self._reading

    async def _stream(self, place: scope.Scope, pod: str, container: str, follow: bool) -> None:
        lines = self.hub.log(place, pod, container=container, follow=follow)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        # A reverse proxy that collects an answer before it passes it on would hold back a followed log.
        self.set_header("X-Accel-Buffering", "no")
        async with contextlib.aclosing(lines):
            async for line in lines:
                self.write(line + "\n")
                await self.flush()
        await self.finish()

    def on_connection_close(self) -> None:
        """Called by tornado when the reader went away."""
        super().on_connection_close()
        if self._reading is not None:
            self._reading.cancel()


class QuickstartHandler(Handler):
    """The quickstart notebook."""

    @route
    async def post(self) -> Any:
        """Put the notebook into the user's files, unless it is there already."""
        self.query()
        self.body()
        return {"path": await quickstart.place(self.contents_manager)}
