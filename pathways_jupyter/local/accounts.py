"""How people and pods reach the cluster's API: kubeconfig files, and what a service account may do."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

from pathways_jupyter.local.apiserver.app import SERVICE_ACCOUNTS, ApiServer
from pathways_jupyter.local.apiserver.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Object,
)
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.directory import write_private

CONTEXT = "pathways-local"

_DISCOVERY = {"nonResourceURLs": ["/api*", "/openapi*", "/version", "/healthz", "/livez", "/readyz"], "verbs": ["get"]}


def write_kubeconfig(path: Path, api: ApiServer, *, user: str, token: str, namespace: str = "default") -> None:
    """Writes a kubeconfig with one context, readable by its owner alone."""
    authority = base64.b64encode(api.ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": api.url, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user, "namespace": namespace}}],
        "current-context": CONTEXT,
    }
    # JSON is YAML to everybody else, and our own loader reads it without a YAML parser.
    write_private(path, json.dumps(config, indent=2) + "\n")


def pod_kubeconfig(pod: Object, *, directory: Path, store: Store, api: ApiServer) -> Path | None:
    """The file by which a pod reaches the API as its service account; None when it does not want to.

    A real pod finds its token below ``/var/run/secrets``, a place that all pods of one machine would share.
    """
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    if spec.get("automountServiceAccountToken") is False:
        return None
    account = spec.get("serviceAccountName") or "default"
    user = f"system:serviceaccount:{namespace}:{account}"
    rules = [_DISCOVERY, *_rules_of(store, namespace, account)]
    token = api.add_token(user, rules, (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}"))
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{namespace}.{account}"
    write_kubeconfig(path, api, user=user, token=token, namespace=namespace)
    return path


def _rules_of(store: Store, namespace: str, account: str) -> Iterator[Object]:
    """What role bindings let a service account do."""
    for binding in [*store.list(CLUSTER_ROLE_BINDINGS), *store.list(ROLE_BINDINGS)]:
        home = binding["metadata"].get("namespace", "")
        if not any(
            each.get("kind") == "ServiceAccount"
            and each.get("name") == account
            and each.get("namespace", home) == namespace
            for each in binding.get("subjects") or ()
        ):
            continue
        reference = binding["roleRef"]
        resource, where = (ROLES, home) if reference["kind"] == "Role" else (CLUSTER_ROLES, "")
        role = store.find(resource, where, reference["name"]) or {}
        for rule in role.get("rules") or ():
            yield {**rule, "namespaces": [home]} if home else rule
