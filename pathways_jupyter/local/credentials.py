"""The credentials of users and of pods: tokens, and the files that carry them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from pathways_jupyter.local.apiserver.app import ApiServer
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.workload_strategy import TOKEN_PATH, mounts
from pathways_jupyter.local.cluster import CONTEXT
from pathways_jupyter.local.directory import write_private

POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
"""Under these keys, a real cluster too says to which pod a token belongs."""


def pod_account(pod: Object, *, directory: Path, api: ApiServer) -> dict[str, str]:
    """Return the variables by which a pod reaches the API as its service account; no token when the pod opts out.

    A real pod finds its token, the certificate authority and its namespace below ``/var/run/secrets``, a place that
    all pods of one machine would share; here the same three files are in the pod's own `directory`, and a kubeconfig
    names them. The token belongs to this pod, and has to be revoked once the pod is gone.
    """
    host, _, port = api.url.removeprefix("https://").partition(":")
    variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    spec, metadata = pod["spec"], pod["metadata"]
    if all(each["mountPath"] != TOKEN_PATH for each in mounts(spec)):
        return variables
    namespace, account = metadata["namespace"], spec.get("serviceAccountName") or "default"
    token = api.add_account_token(namespace, account, {POD_NAME: (metadata["name"],), POD_UID: (metadata["uid"],)})
    files = directory / "serviceaccount"
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in (("token", token), ("ca.crt", api.ca.read_text("ascii")), ("namespace", namespace)):
        write_private(files / name, content)
    kubeconfig = files / "kubeconfig"
    write_kubeconfig(kubeconfig, api, user=account, namespace=namespace, tokenFile=str(files / "token"))
    return {**variables, "KUBECONFIG": str(kubeconfig)}


def write_kubeconfig(path: Path, api: ApiServer, *, user: str, namespace: str = "default", **credentials: str) -> None:
    """Write a kubeconfig with one context, readable by its owner alone.

    Args:
      credentials: The user's, e.g. ``token``.
    """
    authority = base64.b64encode(api.ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": api.url, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user, "namespace": namespace}}],
        "current-context": CONTEXT,
    }
    # Every YAML parser reads JSON, and this project's own loader reads JSON without importing a YAML parser.
    write_private(path, json.dumps(config, indent=2) + "\n")
