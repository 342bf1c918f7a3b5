"""Records of sessions whose supervisor is the test's own process."""

from __future__ import annotations

import os
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
