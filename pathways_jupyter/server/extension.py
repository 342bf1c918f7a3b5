"""Fastens the extension to a Jupyter server."""

from __future__ import annotations

from typing import Any


def load(app: Any) -> None:
    """Adds the routes to `app`."""
