"""Find the API server and its credentials: in a kubeconfig, in the pod that this process runs in, or at Google.

Loading only reads files, except for GKE clusters given by name (`cluster`, `project`, `region`): those are looked up
with google-auth, which needs neither gcloud nor a plugin, and does not change the user's kubeconfig.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, NoKubeconfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube import kubeconfig as kubeconfigs
from pathways_jupyter.kube.cluster_access import Cluster, proxy_of_environment, proxy_problem, tls, url_problem
from pathways_jupyter.kube.credentials import (
    Credentials,
    ExecPlugin,
    Fixed,
    TokenFile,
    load_certificate,
)
from pathways_jupyter.kube.kubeconfig import REFETCH, KubeconfigEntry

OTHER_CLUSTERS = advice(
    "{cluster}/{project}/{region} for GKE, or fetch credentials: "
    "gcloud container clusters get-credentials CLUSTER --region REGION --project PROJECT."
)
"""Advice how to name a cluster that is not the embedded one, after the word "use"."""
_FOR_PLUGIN = "client.authentication.k8s.io/exec"
"""Name of a cluster's extension that is for credential plugins."""
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
    """Find a cluster.

    With `cluster`, `project` and `region` this blocks on a request to Google; otherwise it only reads files.

    Args:
      kubeconfig: A file to read instead of those of ``$KUBECONFIG`` or ``~/.kube/config``.
      context: A context other than the current one.
      cluster: Name of a GKE cluster; needs `project` and `region` (or zone).
      environ: The environment to read instead of the process's own.

    Raises:
      NoKubeconfigError: There is no kubeconfig.
      ConfigError: It cannot be used.
      ClusterError: Google has no such cluster, or refused the request.
    """
    environ = os.environ if environ is None else environ
    if cluster:
        from pathways_jupyter.kube import gke

        return gke.find(cluster, project, region)
    files = kubeconfigs.paths(kubeconfig, environ=environ)
    if files:
        return _from_context(kubeconfigs.read(files).context(context), environ)
    if not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    raise NoKubeconfigError(
        "There is no kubeconfig, so there is no cluster to connect to.",
        hint=advice("Use {local} for a cluster on this machine, {others}", others=OTHER_CLUSTERS),
    )


def of_config(config: ConnectConfig, environ: Mapping[str, str] | None = None) -> Cluster:
    """Find the cluster that the settings of a connection name; see :func:`load`."""
    return load(
        config.kubeconfig,
        config.context,
        cluster=config.cluster,
        project=config.project,
        region=config.region,
        environ=environ,
    )


def in_cluster(environ: Mapping[str, str], *, directory: Path = SERVICE_ACCOUNT) -> Cluster:
    """Return the cluster that this process runs in, with the credentials of the pod's service account.

    Raises:
      ConfigError: This is not a pod, or it has no service account.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    authority, token = directory / "ca.crt", directory / "token"
    if not host or not authority.is_file() or not token.is_file():
        raise ConfigError(
            "This process does not run in a pod with a service account.",
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
    entry = context.cluster
    server = entry.text("server").rstrip("/")
    if problem := url_problem(server, ("https", "http")):
        raise entry.wrong("server", f"is {server!r}, which is not a URL: {problem}")
    # The scheme may be in capitals, and decides whether there is TLS.
    scheme, colon, rest = server.partition(":")
    server = scheme.lower() + colon + rest
    proxy = entry.text("proxy-url")
    problem, hint = proxy_problem(proxy) if proxy else ("", "")
    if problem:
        raise entry.wrong("proxy-url", f"is {proxy!r}, {problem}", hint)
    proxy = proxy or proxy_of_environment(server, environ)
    # Before TLS reads the same files: one that is replaced in between then has another digest the next time.
    identity = _identity(context, proxy)
    try:
        secure = tls(_material(entry, "certificate-authority"), verify=not entry.flag("insecure-skip-tls-verify"))
    except ConfigError as error:
        raise entry.about(error) from error
    return Cluster(
        name=context.name,
        server=server,
        namespace=context.namespace or "default",
        credentials=_credentials(context, secure),
        ssl=secure if server.startswith("https://") else None,
        server_name=entry.text("tls-server-name"),
        proxy=proxy,
        headers=_impersonation(context.user),
        identity=identity,
    )


def _identity(context: kubeconfigs.Context, proxy: str) -> str:
    named = (
        (context.cluster, "certificate-authority"),
        (context.user, "client-certificate"),
        (context.user, "client-key"),
    )
    return sha256(repr((context, proxy, [_material(*each) for each in named])).encode()).hexdigest()


def _impersonation(user: KubeconfigEntry) -> list[tuple[str, str]]:
    """Return the headers with the identity that requests have instead of the user's own."""
    extra = user.within("as-user-extra")
    headers = [("Impersonate-User", user.text("as"))] if user.text("as") else []
    headers += [("Impersonate-Group", group) for group in user.texts("as-groups")]
    headers += [("Impersonate-Uid", user.text("as-uid"))] if user.text("as-uid") else []
    headers += [
        # What a header's name cannot have is percent-encoded there.
        (f"Impersonate-Extra-{quote(name, safe='')}", value)
        for name in extra.fields
        for value in extra.texts(name)
    ]
    if headers and not user.text("as"):
        raise user.wrong("as", "is missing, and the rest of an identity is given")
    return headers


def _credentials(context: kubeconfigs.Context, secure: ssl.SSLContext) -> Credentials:
    user = context.user
    certificate, key = _material(user, "client-certificate"), _material(user, "client-key")
    if bool(certificate) != bool(key):
        present, missing = ("certificate", "key") if certificate else ("key", "certificate")
        raise user.wrong(f"client-{missing}", f"is missing, and there is a client-{present}")
    if certificate:
        try:
            load_certificate(secure, certificate, key)
        except ConfigError as error:
            raise user.about(error) from error
    hint = f"The credentials of context {context.name} are wrong or have expired. {REFETCH}"
    # In kubectl's order of precedence.
    if path := user.text("tokenFile"):
        return TokenFile(Path(path))
    if token := user.text("token"):
        return Fixed(f"Bearer {token}", hint=hint)
    if name := user.text("username"):
        pair = base64.b64encode(f"{name}:{user.text('password')}".encode()).decode()
        return Fixed(f"Basic {pair}", hint=hint)
    if user.within("exec").fields:
        return _exec_plugin(user.within("exec"), context.cluster, secure)
    if user.within("auth-provider").fields:
        raise user.wrong(
            "auth-provider", "is not supported: log in with an exec plugin, such as gke-gcloud-auth-plugin"
        )
    return Fixed(hint=hint)


def _exec_plugin(entry: KubeconfigEntry, cluster: KubeconfigEntry, secure: ssl.SSLContext) -> ExecPlugin:
    variables = entry.fields.get("env") or []
    if not isinstance(variables, list) or not all(
        isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("value"), str)
        for each in variables
    ):
        raise entry.wrong("env", "must be a list of entries with a name and a value")
    config = {
        **{field: entry.text(field) for field in ("apiVersion", "command", "interactiveMode")},
        "args": entry.texts("args"),
        "env": variables,
        "installHint": entry.fields.get("installHint"),
        "provideClusterInfo": entry.flag("provideClusterInfo"),
    }
    return ExecPlugin(config, directory=entry.file.parent, cluster=_of_cluster(cluster), context=secure)


def _of_cluster(cluster: KubeconfigEntry) -> dict[str, Any]:
    """Return what kubectl has its plugins know of a cluster, in the fields of an ExecCredential."""
    authority = _material(cluster, "certificate-authority")
    info = {
        **{field: cluster.text(field) for field in ("server", "tls-server-name", "proxy-url")},
        **{field: cluster.flag(field) for field in ("insecure-skip-tls-verify", "disable-compression")},
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "config": next(
            (each.get("extension") for each in _extensions(cluster) if each.get("name") == _FOR_PLUGIN), None
        ),
    }
    return {field: value for field, value in info.items() if value not in ("", False, None)}


def _extensions(entry: KubeconfigEntry) -> list[dict[str, Any]]:
    listed = entry.fields.get("extensions") or []
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise entry.wrong("extensions", "must be a list of named extensions")
    return listed


def _material(entry: KubeconfigEntry, name: str) -> bytes:
    """Return the PEM bytes that an entry holds inline (``<name>-data``) or in a file that it names."""
    inline = entry.fields.get(f"{name}-data")
    if inline:
        try:
            # kubectl accepts line breaks in base64 data, as do we.
            return base64.b64decode("".join(str(inline).split()), validate=True)
        except ValueError as error:
            raise entry.wrong(f"{name}-data", "is not base64") from error
    path = entry.text(name)
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as error:
        raise entry.wrong(name, f"names {path}, which cannot be read: {error.strerror}") from error
