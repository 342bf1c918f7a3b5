"""The Jupyter server extension behind the sidebar: thin handlers on top of :mod:`.server_state`."""

from __future__ import annotations

from typing import Any


def _load_jupyter_server_extension(app: Any) -> None:
    """Entry point that jupyter_server calls when it starts."""
    from pathways_jupyter.server import extension

    extension.load(app)
