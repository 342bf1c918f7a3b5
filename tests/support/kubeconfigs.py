"""Kubeconfigs, as tests write them."""

import json
from pathlib import Path


def write(path: Path, cluster: dict, user: dict, *, name: str = "x", **context: str) -> str:
    """Writes a kubeconfig of one context, which is the current one; returns its path."""
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": name,
                "contexts": [{"name": name, "context": {"cluster": "c", "user": "u", **context}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(path)
