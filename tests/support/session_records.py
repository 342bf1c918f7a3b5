"""Records of sessions without a supervisor of their own: bare, or as if it were the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from pathways_jupyter.session import registry
from pathways_jupyter.session.registry import SessionRecord


def bare_record(**about: Any) -> SessionRecord:
    """A record that names no files, and no process but init."""
    texts = dict.fromkeys(("id", "kernel_id", "notebook", "user", "socket", "tunnel", "log"), "")
    return SessionRecord(**{**texts, "pid": 1, "kernel_pid": 1, "created": 0.0, "config": {}, **about})


def new_record(*, id: str = "", **about: Any) -> SessionRecord:
    """A record with the paths of its files, and this process for its supervisor and kernel."""
    session = id or registry.new_session_id()
    control, tunnel = map(str, registry.socket_paths(session))
    own = {"pid": os.getpid(), "kernel_pid": os.getpid(), "log": str(registry.log_path(session))}
    return bare_record(**{**own, "id": session, "socket": control, "tunnel": tunnel, "user": "jane", **about})


@contextlib.asynccontextmanager
async def listening(record: SessionRecord) -> AsyncIterator[None]:
    """Listen as a supervisor does: a session whose socket does not listen counts as dead, and is swept."""
    control = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), record.socket)
    try:
        yield
    finally:
        control.close()
