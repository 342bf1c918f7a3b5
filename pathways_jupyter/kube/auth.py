"""Finds the API server and the credentials for it: from a kubeconfig, from inside a pod, or from Google.

Loading reads files and nothing else, except for GKE clusters given by name (`cluster`, `project`, `region`), which are
looked up at Google with google-auth; no gcloud, no plugin, and the user's kubeconfig stays as it is.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathways_jupyter.errors import ConfigError
from pathways_jupyter.kube import kubeconfig as kubeconfigs
from pathways_jupyter.kube.cluster import REFETCH, Cluster, tls
from pathways_jupyter.kube.credentials import Credentials, ExecPlugin, Fixed, TokenFile, basic, load_certificate

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load(
    kubeconfig: str = "",
    context: str = "",
    *,
    cluster: str = "",
    project: str = "",
    region: str = "",
    environ: Mapping[str, str] | None = None,
) -> Cluster:
    """Finds a cluster.

    With `cluster`, `project` and `region` this asks Google and blocks until it answered; otherwise it only reads files.

    Args:
      kubeconfig: A file to read instead of those of ``$KUBECONFIG`` or ``~/.kube/config``.
      context: A context other than the current one.
      cluster: Name of a GKE cluster; needs `project` and `region` (or zone).
      environ: The environment to read instead of the process's own.

    Raises:
      ConfigError: There is no kubeconfig, or it cannot be used.
      ClusterError: Google knows no such cluster, or refused to say.
    """
    environ = os.environ if environ is None else environ
    if cluster:
        from pathways_jupyter.kube import google

        return google.find(cluster, project, region)
    files = kubeconfigs.paths(kubeconfig, environ=environ)
    if files:
        return _from_context(kubeconfigs.read(files).context(context), environ)
    if not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    raise ConfigError(
        "There is no kubeconfig, so no cluster to connect to.",
        hint="Use --local for a cluster on this machine, --cluster/--project/--region for GKE, or fetch credentials.",
    )


def contexts(kubeconfig: str = "", *, environ: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], str]:
    """Names of all contexts, and the current one (empty when there is none).

    Raises:
      ConfigError: A file is not a kubeconfig.
    """
    files = kubeconfigs.paths(kubeconfig, environ=environ)
    merged = kubeconfigs.read(files)
    return tuple(sorted(merged.contexts)), merged.current


def in_cluster(environ: Mapping[str, str] | None = None, *, directory: Path = SERVICE_ACCOUNT) -> Cluster:
    """The cluster that this very process runs in, as the pod's service account.

    Raises:
      ConfigError: This is not a pod, or it has no service account.
    """
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    authority, token = directory / "ca.crt", directory / "token"
    if not host or not authority.is_file() or not token.is_file():
        raise ConfigError(
            "This process is not in a pod with a service account.",
            hint="Give the pod a service account and mount its token (automountServiceAccountToken).",
        )
    namespace = directory / "namespace"
    return Cluster(
        name="in-cluster",
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.is_file() else "default",
        credentials=TokenFile(token),
        ssl=tls(authority.read_bytes()),
    )


def _from_context(context: kubeconfigs.Context, environ: Mapping[str, str]) -> Cluster:
    server = str(context.cluster["server"]).rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"Context {context.name!r}: {server!r} is not a URL.", hint=REFETCH)
    secure = tls(
        _material(context.cluster, "certificate-authority"),
        verify=not context.cluster.get("insecure-skip-tls-verify", False),
    )
    return Cluster(
        name=context.name,
        server=server,
        namespace=context.namespace or "default",
        credentials=_credentials(context, secure),
        ssl=secure if server.startswith("https://") else None,
        server_name=str(context.cluster.get("tls-server-name") or ""),
        proxy=str(context.cluster.get("proxy-url") or "") or _proxy_of_environment(server, environ),
        headers=_impersonation(context.user),
    )


def _credentials(context: kubeconfigs.Context, secure: ssl.SSLContext) -> Credentials:
    user = context.user
    certificate, key = _material(user, "client-certificate"), _material(user, "client-key")
    if certificate and key:
        load_certificate(secure, certificate, key)
    hint = f"The credentials of context {context.name} are wrong or have expired. {REFETCH}"
    # The same order of precedence as kubectl's.
    if user.get("tokenFile"):
        return TokenFile(Path(str(user["tokenFile"])))
    if user.get("token"):
        return Fixed(f"Bearer {user['token']}", hint=hint)
    if user.get("username"):
        return Fixed(basic(str(user["username"]), str(user.get("password", ""))), hint=hint)
    if user.get("exec"):
        return ExecPlugin(user["exec"], directory=context.source.parent, cluster=context.cluster, context=secure)
    if user.get("auth-provider"):
        from pathways_jupyter.kube import google

        return google.legacy_provider(context.name, context.source, hint=hint)
    return Fixed(hint=hint)


def _material(entry: Mapping[str, Any], name: str) -> bytes:
    """PEM bytes that an entry holds inline (``<name>-data``) or names a file of."""
    inline, path = entry.get(f"{name}-data"), entry.get(name)
    try:
        if inline:
            return base64.b64decode(str(inline), validate=True)
        return Path(str(path)).read_bytes() if path else b""
    except ValueError as error:
        raise ConfigError(f"The kubeconfig's {name}-data is not base64.", hint=REFETCH) from error
    except OSError as error:
        raise ConfigError(f"The kubeconfig's {name} {path} cannot be read: {error.strerror}.", hint=REFETCH) from error


def _impersonation(user: Mapping[str, Any]) -> dict[str, str]:
    groups = [str(group) for group in user.get("as-groups") or ()]
    if len(groups) > 1:
        raise ConfigError(
            "The kubeconfig impersonates several groups, which is not supported.", hint="Use a context with one group."
        )
    headers = {"Impersonate-User": str(user["as"])} if user.get("as") else {}
    return headers | ({"Impersonate-Group": groups[0]} if groups else {})


def _proxy_of_environment(server: str, environ: Mapping[str, str]) -> str:
    proxy = environ.get("HTTPS_PROXY") or environ.get("https_proxy") or ""
    if not proxy or not server.startswith("https://"):
        return ""
    from urllib.parse import urlsplit

    host = urlsplit(server).hostname or ""
    listed = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    exempt = [name.strip().lstrip(".") for name in listed.split(",") if name.strip()]
    direct = host == "localhost" or host.startswith("127.") or "*" in exempt
    return "" if direct or any(host == name or host.endswith(f".{name}") for name in exempt) else proxy
