"""Connect to GKE clusters by name, without gcloud: the same Google token opens the GKE API and the API server.

Imported only when a cluster is given by project and region, or when a kubeconfig still uses an ``auth-provider``,
because importing google-auth takes a noticeable part of a second.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pathways_jupyter.errors import ApiError, ClusterError, ConfigError
from pathways_jupyter.kube.cluster import Cluster, tls
from pathways_jupyter.kube.credentials import Renewable

ENDPOINT_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER"
"""The variable with which gcloud is pointed at another endpoint than the public one."""

_ENDPOINT = "https://container.googleapis.com/"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOGIN = "Run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a service account's file."
_TIMEOUT_SECONDS = 20.0
# Its tokens come without an expiry. The `kubernetes` package refreshes expired ones when called: call it this often.
_LEGACY_SECONDS = 600.0


def find(cluster: str, project: str, region: str) -> Cluster:
    """Look up a GKE cluster at Google; blocks.

    Raises:
      ConfigError: Project or region is missing.
      ClusterError: There are no Google credentials here.
      ApiError: Google has no such cluster, or these credentials may not read it.
    """
    if not (project and region):
        raise ConfigError(f"GKE cluster {cluster!r} needs its project and region.", hint="Add --project and --region.")
    token = token_source()
    described = _describe(cluster, project, region, token)
    server, authority = _endpoint(described, cluster)
    return Cluster(
        name=f"gke_{project}_{region}_{cluster}",
        server=server,
        namespace="default",
        credentials=Renewable(token, hint=_LOGIN),
        ssl=tls(authority),
    )


def token_source() -> Callable[[], tuple[str, float]]:
    """Return a blocking function that fetches an access token of Google's default credentials, and its expiry.

    Raises:
      ClusterError: There are no such credentials on this machine.
    """
    import google.auth
    import google.auth.exceptions
    import google.auth.transport.requests

    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise ClusterError("There are no Google credentials on this machine.", hint=_LOGIN) from error

    def fetch() -> tuple[str, float]:
        # A new session each time: this runs rarely, and sessions are not thread-safe.
        request = google.auth.transport.requests.Request()
        try:
            credentials.refresh(request)
        except google.auth.exceptions.GoogleAuthError as error:
            detail = " ".join(str(error.args[0] if error.args else error).split())
            raise ClusterError(f"Google refused to issue a token: {detail}.", hint=_LOGIN) from error
        finally:
            request.session.close()
        return str(credentials.token), _expiry(credentials)

    return fetch


def legacy_provider(context: str, kubeconfig: Path, *, hint: str) -> Renewable:
    """Return the credentials of a user with an ``auth-provider`` (OIDC and the like), from the `kubernetes` package."""

    def fetch() -> tuple[str, float]:
        import time

        import kubernetes.client
        import kubernetes.config

        configuration = kubernetes.client.Configuration()
        try:
            kubernetes.config.load_kube_config(
                str(kubeconfig), context, client_configuration=configuration, persist_config=False
            )
        except Exception as error:
            # The package's loaders raise whatever their own dependencies raise.
            raise ClusterError(f"The credentials of context {context} cannot be used: {error}.", hint=hint) from error
        value = configuration.get_api_key_with_prefix("BearerToken", "authorization")
        if not value:
            raise ClusterError(f"The credentials of context {context} give no token.", hint=hint)
        return str(value).removeprefix("Bearer "), time.time() + _LEGACY_SECONDS

    return Renewable(fetch, hint=hint)


def _describe(cluster: str, project: str, region: str, token: Callable[[], tuple[str, float]]) -> Mapping[str, Any]:
    import requests

    base = os.environ.get(ENDPOINT_VARIABLE) or _ENDPOINT
    name = f"projects/{quote(project, safe='')}/locations/{quote(region, safe='')}/clusters/{quote(cluster, safe='')}"
    try:
        response = requests.get(
            f"{base.rstrip('/')}/v1/{name}",
            headers={"Authorization": f"Bearer {token()[0]}"},
            timeout=_TIMEOUT_SECONDS,
        )
    except requests.RequestException as error:
        raise ClusterError(
            f"Google's Kubernetes Engine API cannot be reached: {type(error).__name__}.",
            hint="Check the network, or use --context with credentials that are already here.",
        ) from error
    if not response.ok:
        raise _refused(response.status_code, response.text, name)
    answer = response.json()
    return answer if isinstance(answer, dict) else {}


def _endpoint(described: Mapping[str, Any], cluster: str) -> tuple[str, bytes]:
    """Return the cluster's URL and its certificate authority (empty: a public one)."""
    dns = (described.get("controlPlaneEndpointsConfig") or {}).get("dnsEndpointConfig") or {}
    if dns.get("endpoint") and dns.get("allowExternalTraffic"):
        return f"https://{dns['endpoint']}", b""
    endpoint = described.get("endpoint")
    authority = (described.get("masterAuth") or {}).get("clusterCaCertificate")
    if not endpoint or not authority:
        state = described.get("status", "in an unknown state")
        raise ClusterError(
            f"GKE cluster {cluster} has no endpoint; it is {state}.", hint="Wait until it is RUNNING, and try again."
        )
    return f"https://{endpoint}", base64.b64decode(authority)


def _refused(status: int, body: str, name: str) -> ApiError:
    import json

    try:
        detail = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        detail = f"HTTP {status}"
    hints = {
        401: _LOGIN,
        403: "Ask for the role Kubernetes Engine Cluster Viewer (roles/container.clusterViewer) on the project.",
        404: "Check --cluster, --project and --region; gcloud container clusters list shows what there is.",
    }
    return ApiError(
        f"Reading {name} from Google failed: {detail}", status=status, hint=hints.get(status, "Try again later.")
    )


def _expiry(credentials: Any) -> float:
    from datetime import UTC

    # google-auth's datetimes are naive, but mean UTC.
    return credentials.expiry.replace(tzinfo=UTC).timestamp() if credentials.expiry else float("inf")
