"""Records of sessions whose supervisor is the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from pathways_jupyter.session import registry
from pathways_jupyter.session.registry import SessionRecord


def new_record(**about: Any) -> SessionRecord:
    session = registry.new_session_id()
    control, tunnel = map(str, registry.socket_paths(session))
    names = dict.fromkeys(("kernel_id", "notebook"), "")
    own = {"id": session, "pid": os.getpid(), "kernel_pid": os.getpid(), "socket": control, "tunnel": tunnel}
    own["log"] = str(registry.log_path(session))
    return SessionRecord(**{**names, **own, "user": "jane", "created": 0.0, "config": {}, **about})


@contextlib.asynccontextmanager
async def listening(record: SessionRecord) -> AsyncIterator[None]:
    """Listen as a supervisor does: a session whose socket does not listen counts as dead, and is swept."""
    control = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), record.socket)
    try:
        yield
    finally:
        control.close()
