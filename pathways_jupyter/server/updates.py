"""The WebSocket of a page: the server sends changes, the page sends which cluster it shows."""

from __future__ import annotations

import asyncio
import contextlib
import json
from importlib.metadata import version
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.server import request_checks
from pathways_jupyter.server import scope as scopes
from pathways_jupyter.server.cluster_view import ClusterView
from pathways_jupyter.server.scope import Scope
from pathways_jupyter.server.server_state import ServerState

BEAT_SECONDS = 15.0
"""Interval of a page's signs of life. A page that gets none for three times as long opens a new connection: a browser
does not notice that a laptop slept or a VPN is gone, and does not report WebSocket's own pings."""


class UpdatesHandler(request_checks.SameSiteMixin, WebSocketMixin, WebSocketHandler, JupyterHandler):  # type: ignore[misc]
    """Sends sessions always, and a cluster's tables while the page shows one.

    A browser sends the Origin of the page that opens a WebSocket, which Jupyter checks; there is no XSRF token.
    """

    max_message_size = request_checks.LONGEST_MESSAGE_BYTES

    def initialize(self, server_state: ServerState) -> None:
        """Set the options of the route; tornado calls this."""
        self.server_state = server_state
        self._beating: asyncio.Task[None] | None = None
        self._showing: asyncio.Task[None] | None = None

    @authorized(resource=request_checks.RESOURCE)  # type: ignore[untyped-decorator]
    async def get(self, *words: str, **named: str) -> None:
        """Admit the same users as the REST routes."""
        await super().get(*words, **named)

    async def open(self, *words: str, **named: str) -> None:
        """Send the version, then the sessions."""
        super().open(*words, **named)
        self._send({"type": "hello", "version": version("pathways_jupyter")})
        self.server_state.prepare()
        self.server_state.sessions.add(self._send)
        self._beating = self.server_state.spawn(self._beat())

    async def on_message(self, message: str | bytes) -> None:
        """Handle the page's choice of another cluster, or of none."""
        try:
            scope = _requested(json.loads(message))
        except (ValueError, RecursionError, ConfigError) as error:
            self.log.warning("pathways_jupyter: a page sent an invalid message: %s", error)
            self.close(1003, "unreadable")
            return
        if self._showing is not None:
            self._showing.cancel()
        # The watch of the previous cluster goes on for a moment: it is often the next scope's as well.
        self._showing = (
            None if scope is None else self.server_state.spawn(ClusterView(self.server_state, scope, self._send).show())
        )

    def on_close(self) -> None:
        """Remove the page's listeners."""
        for task in (self._beating, self._showing):
            if task is not None:
                task.cancel()
        self.server_state.sessions.remove(self._send)
        super().on_close()

    async def _beat(self) -> None:
        while True:
            self._send({"type": "beat"})
            await asyncio.sleep(BEAT_SECONDS)

    def _send(self, message: dict[str, Any]) -> None:
        """Send `message` unless the page is gone. Never raises: the publisher has other pages to serve."""
        try:
            text = json.dumps(message, separators=(",", ":"), allow_nan=False)
        except ValueError:
            # A number that is not finite, which a browser cannot read. The page shows that it missed something; sending
            # it the full state again would fail again.
            self.log.exception("pathways_jupyter: a message of type %s is not JSON", message["type"])
            text = '{"type":"unreadable"}'
        # Raised here during the closing handshake, and by the future once the connection is gone; on_close() follows.
        with contextlib.suppress(WebSocketClosedError):
            self.write_message(text).add_done_callback(lambda sending: sending.cancelled() or sending.exception())


def _requested(message: Any) -> Scope | None:
    """Return the scope that a page wants to show; None for none.

    Raises:
      ConfigError: The message is invalid.
    """
    if not isinstance(message, dict) or set(message) != {"type", "scope"} or message["type"] != "look":
        raise ConfigError("The message is not of type look.", hint="Reload the page.")
    if message["scope"] is None:
        return None
    if not isinstance(message["scope"], dict):
        raise ConfigError("The scope is not a JSON object.", hint="Reload the page.")
    return scopes.parse(request_checks.checked(message["scope"], scopes.NAMES))
