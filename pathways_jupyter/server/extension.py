"""Registration of the extension with a Jupyter server, and its settings for administrators."""

from __future__ import annotations

import os
from typing import Any

from jupyter_server.utils import url_path_join
from traitlets import Unicode
from traitlets.config import Configurable

from pathways_jupyter.server.handlers import RouteRequest
from pathways_jupyter.server.routes import ROUTES
from pathways_jupyter.server.server_state import ServerState
from pathways_jupyter.server.updates import UpdatesHandler

KERNEL_ACTIONS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
ROOT = "pathways-jupyter"


class PathwaysJupyter(Configurable):
    """Settings in ``jupyter_server_config.py``: ``c.PathwaysJupyter.kubeconfig = "/etc/team/kubeconfig"``."""

    kubeconfig = Unicode(
        "",
        config=True,
        help="""Kubeconfig of this server and of its kernels; overrides KUBECONFIG. Several files are separated as in
        KUBECONFIG. Pages cannot choose a kubeconfig, because one can run programs.""",
    )


def load(app: Any) -> None:
    """Add the routes to `app`, and subscribe to the end of its kernels to clean up after them."""
    if kubeconfig := PathwaysJupyter(parent=app).kubeconfig:
        # The environment of this process, which its kernels inherit, so that the sidebar and `connect` agree.
        os.environ["KUBECONFIG"] = os.pathsep.join(
            os.path.abspath(os.path.expanduser(part)) for part in kubeconfig.split(os.pathsep) if part
        )
    server_state = ServerState()
    base = app.web_app.settings["base_url"]
    handlers: list[tuple[str, type, dict[str, Any]]] = [
        (url_path_join(base, ROOT, route.path), RouteRequest, {"server_state": server_state, "route": route})
        for route in ROUTES
    ]
    handlers.append((url_path_join(base, ROOT, "updates"), UpdatesHandler, {"server_state": server_state}))
    app.web_app.add_handlers(".*$", handlers)

    async def kernel_acted(logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        if data.get("action") in {"shutdown", "restart"} and data.get("kernel_id"):
            server_state.spawn(server_state.kernel_ended(str(data["kernel_id"])))

    app.event_logger.add_listener(schema_id=KERNEL_ACTIONS, listener=kernel_acted)
