"""Write kubeconfigs for tests."""

import json
from pathlib import Path


def write(path: Path, cluster: dict, user: dict, *, name: str = "x", **context: str) -> str:
    """Write a kubeconfig with one context, the current one; return its path."""
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
