"""Kernels over sockets in files: a TCP port that is chosen before its kernel starts may be taken by then."""

import uuid
from pathlib import Path


def ipc(directory: Path | str) -> dict[str, str]:
    """Return what `jupyter_client.KernelManager` takes for sockets of one kernel in a directory (its path short)."""
    return {"transport": "ipc", "ip": f"{directory}/k{uuid.uuid4().hex[:8]}"}
