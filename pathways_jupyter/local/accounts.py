"""Kubeconfig files for users and pods."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from pathways_jupyter.local.apiserver.app import SERVICE_ACCOUNTS, ApiServer
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.cluster import CONTEXT
from pathways_jupyter.local.directory import write_private

_DISCOVERY = {"nonResourceURLs": ["/api*", "/openapi*", "/version", "/healthz", "/livez", "/readyz"], "verbs": ["get"]}


def write_kubeconfig(path: Path, api: ApiServer, *, user: str, token: str, namespace: str = "default") -> None:
    """Write a kubeconfig with one context, readable by its owner alone."""
    authority = base64.b64encode(api.ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": api.url, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user, "namespace": namespace}}],
        "current-context": CONTEXT,
    }
    # Every YAML parser reads JSON, and this project's own loader reads JSON without importing a YAML parser.
    write_private(path, json.dumps(config, indent=2) + "\n")


def pod_kubeconfig(pod: Object, *, directory: Path, api: ApiServer) -> Path | None:
    """Kubeconfig by which a pod reaches the API as its service account; None when the pod opts out.

    A real pod finds its token below ``/var/run/secrets``, a place that all pods of one machine would share.
    """
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    if spec.get("automountServiceAccountToken") is False:
        return None
    account = spec.get("serviceAccountName") or "default"
    user = f"system:serviceaccount:{namespace}:{account}"
    # Discovery only; everything beyond it comes from roles and their bindings.
    token = api.add_token(user, [_DISCOVERY], (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}"))
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{namespace}.{account}"
    write_kubeconfig(path, api, user=user, token=token, namespace=namespace)
    return path
