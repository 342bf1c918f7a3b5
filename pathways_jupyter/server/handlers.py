"""The handler of all REST routes: it checks who asks and what for, and sends the action's result or error as JSON.

The routes themselves are in :mod:`pathways_jupyter.server.routes`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.iostream import StreamClosedError

from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError, PathwaysError, ServiceError, SessionError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.server import request_checks
from pathways_jupyter.server.server_state import ServerState

_BUG_HINT = "This is a bug in pathways_jupyter; see the log of the Jupyter server."

T = TypeVar("T")


@dataclass(frozen=True)
class Route:
    """One route.

    Attributes:
      method: ``GET`` or ``POST``.
      path: A regular expression; its groups are the action's further arguments.
      action: Takes the request; returns JSON values, or a generator of lines that are sent as they come.
      parameters: The names that the query of a GET request, or the body of a POST request, may contain.
    """

    method: str
    path: str
    action: Callable[..., Awaitable[dict[str, Any] | AsyncGenerator[str, None]]]
    parameters: tuple[str, ...] = ()


class RouteRequest(request_checks.SameSiteMixin, APIHandler):  # type: ignore[misc]  # jupyter_server comes without types
    """A request for a route.

    Attributes:
      parameters: Its parameters, by name.
    """

    _working: asyncio.Task[Any] | None = None

    def initialize(self, server_state: ServerState, route: Route) -> None:
        """Set the options of the route; tornado calls this."""
        self.server_state, self._route = server_state, route
        self.parameters: dict[str, Any] = {}

    async def prepare(self) -> None:
        """Prepare a request before its method runs; tornado calls this."""
        await super().prepare()
        # Jupyter requires the XSRF token for writing requests only. Here, reading uses the user's credentials too.
        if not self._finished and self.request.method in {"GET", "HEAD"}:
            # JupyterHub replaces this check by its own, which requires the token for reading only where this header
            # names a script as the sender. It has no setting for that, and navigations are no exception here.
            self.request.headers["Sec-Fetch-Mode"] = "cors"
            self.check_xsrf_cookie()

    def check_referer(self) -> bool:
        """Reject a Referer as a substitute for the XSRF token, which Jupyter accepts for GET requests.

        Any page of this server sends one, e.g. an opened HTML file or a link in a notebook's output.
        """
        return False

    # Two methods, because `authorized` derives the action from the method of the first request, and keeps it.
    @web.authenticated
    @authorized(resource=request_checks.RESOURCE)  # type: ignore[untyped-decorator]
    async def get(self, *words: str) -> None:
        """Handle a GET; tornado calls this."""
        await self._answer(words)

    @web.authenticated
    @authorized(resource=request_checks.RESOURCE)  # type: ignore[untyped-decorator]
    async def post(self, *words: str) -> None:
        """Handle a POST; tornado calls this."""
        await self._answer(words)

    async def _answer(self, words: tuple[str, ...]) -> None:
        route = self._route
        if self.request.method != route.method:
            raise web.HTTPError(405)
        try:
            query, body = request_checks.query(self.request), {}
            if route.method == "POST":
                request_checks.checked(query, ())
                body = request_checks.json_object(self.request.body)
            self.parameters = request_checks.checked({**query, **body}, route.parameters)
            result = await route.action(self, *words)
            if isinstance(result, AsyncGenerator):
                await self._stream(result)
            else:
                await self.finish(json.dumps(result, allow_nan=False))
        except PathwaysError as error:
            await self._fail(error, status_of(error))
        except (asyncio.CancelledError, StreamClosedError):
            # The client has disconnected, so that no answer can be sent.
            pass
        except web.HTTPError:
            # Jupyter's own, which says what is wrong.
            raise
        except Exception as error:
            self.log.exception("pathways_jupyter: %s %s", self.request.method, self.request.path)
            await self._fail(unexpected(error), 500)

    async def _fail(self, error: PathwaysError, status: int) -> None:
        if self._headers_written:
            # The page shows the lines that were sent, and this as the last one.
            await self.finish(f"{error} {error.advice(Face.SIDEBAR)}".strip() + "\n")
        else:
            self.set_status(status)
            await self.finish(json.dumps(error.to_json(Face.SIDEBAR), allow_nan=False))

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which is cancelled when the client disconnects."""
        self._working = working = asyncio.create_task(work)
        return await working

    async def _stream(self, lines: AsyncGenerator[str, None]) -> None:
        async def send() -> None:
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            # Otherwise a reverse proxy that buffers responses would delay a followed log.
            self.set_header("X-Accel-Buffering", "no")
            async with contextlib.aclosing(lines):
                async for line in lines:
                    self.write(line + "\n")
                    await self.flush()
            await self.finish()

        await self.while_connected(send())

    def on_connection_close(self) -> None:
        """Stop when the client disconnects; tornado calls this."""
        super().on_connection_close()
        if self._working is not None:
            self._working.cancel()


def unexpected(error: BaseException) -> PathwaysError:
    """Return what a page shows of an unexpected exception; the caller logs its traceback."""
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return PathwaysError(f"The Jupyter server failed to do this ({reason}).", hint=_BUG_HINT)


def status_of(error: PathwaysError) -> int:
    """Return the HTTP status of `error`: 4xx if the user must act, 502 if the cluster failed."""
    if isinstance(error, ApiError):
        return error.status if 400 <= error.status < 500 and error.status != 401 else 502
    kinds = ((ConfigError, 400), (SessionError, 404), (ServiceError, 409), (ClusterError, 502))
    return next((status for kind, status in kinds if isinstance(error, kind)), 409)
