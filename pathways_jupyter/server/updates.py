"""The one WebSocket of a page: what changes is sent, and the page says which cluster it looks at."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from pathways_jupyter.errors import ConfigError, PathwaysError
from pathways_jupyter.server import scope as scopes
from pathways_jupyter.server.handlers import RESOURCE
from pathways_jupyter.server.hub import Hub
from pathways_jupyter.server.scope import Scope
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.service.naming import current_user


class UpdatesHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):  # type: ignore[misc]
    """Sends sessions always, and a cluster's tables while the page looks at one."""

    auth_resource = RESOURCE

    def initialize(self, hub: Hub) -> None:
        """Called by tornado."""
        self.hub = hub
        self._watch: ClusterWatch | None = None
        self._scope = Scope()
        self._asked = 0

    async def get(self, *words: str, **named: str) -> None:
        """Lets in whom the REST routes let in."""
        user = self.current_user
        if user is None:
            raise web.HTTPError(403)
        if not await ensure_async(self.authorizer.is_authorized(self, user, "read", self.auth_resource)):
            raise web.HTTPError(403)
        await super().get(*words, **named)

    async def open(self, *words: str, **named: str) -> None:
        """Begins with who is here, and which sessions there are."""
        super().open(*words, **named)
        self._send({"type": "hello", "version": version("pathways_jupyter"), "user": current_user()})
        await self.hub.sessions.add(self._send)

    async def on_message(self, message: str | bytes) -> None:
        """Looks at another cluster, or at none."""
        try:
            said = json.loads(message)
            wanted = said["scope"] if said["type"] == "look" else None
            scope = None if wanted is None else scopes.parse(dict(wanted))
        except (ValueError, KeyError, TypeError, ConfigError) as error:
            self.log.warning("pathways_jupyter: a page sent what cannot be read: %s", error)
            self.close(1003, "unreadable")
            return
        await self._look(scope)

    def on_close(self) -> None:
        """Lets go of everything."""
        self.hub.sessions.remove(self._send)
        self._leave()
        super().on_close()

    async def _look(self, scope: Scope | None) -> None:
        self._asked += 1
        asked = self._asked
        if scope is None:
            self._leave()
            return
        try:
            watch = await self.hub.watch(scope)
            named = await asyncio.to_thread(scopes.named, scope)
        except PathwaysError as error:
            self._leave()
            self._scope = scope
            problem = {"message": str(error), "hint": error.hint}
            self._tell({"type": "hearing", "hearing": "failed", "problem": problem, "place": ""})
            return
        if asked != self._asked or self.ws_connection is None:
            return
        if watch is self._watch and scope == self._scope:
            return
        self._leave()
        self._watch, self._scope = watch, scope
        self._send({"type": "named", "scope": scope.to_json(), "named": named.to_json()})
        watch.add(self._tell)

    def _leave(self) -> None:
        if self._watch is not None:
            self._watch.remove(self._tell)
            self._watch = None

    def _tell(self, message: dict[str, Any]) -> None:
        """Sends what a watch says, with the scope as this page calls it."""
        self._send({**message, "scope": self._scope.to_json()})

    def _send(self, message: dict[str, Any]) -> None:
        if self.ws_connection is None:
            return
        sending = self.write_message(json.dumps(message, separators=(",", ":")))
        # A page that goes away while it is told something is no fault; its closing is seen by on_close.
        sending.add_done_callback(_only_closed)


def _only_closed(sending: asyncio.Future[None]) -> None:
    error = sending.exception()
    if error is not None and not isinstance(error, WebSocketClosedError):
        raise error
