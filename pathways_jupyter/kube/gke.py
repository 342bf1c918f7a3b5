"""Connect to GKE clusters by name, without gcloud: the same Google token opens the GKE API and the API server.

Imported only when a cluster is given by project and region, because importing google-auth takes a noticeable part of a
second.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError
from pathways_jupyter.base.google import LOGIN, no_credentials
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube.cluster_access import Cluster, proxy_of_environment, tls
from pathways_jupyter.kube.credentials import Renewable

if TYPE_CHECKING:
    import requests

_ENDPOINT = "https://container.googleapis.com/"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_NETWORK = "Check the network and HTTPS_PROXY, and try again."
_TIMEOUT_SECONDS = 20.0


def find(cluster: str, project: str, region: str) -> Cluster:
    """Look up a GKE cluster at Google; blocks.

    Raises:
      ConfigError: Project or region is missing.
      ClusterError: There are no Google credentials here.
      ApiError: Google has no such cluster, or these credentials may not read it.
    """
    if not (project and region):
        raise ConfigError(
            f"GKE cluster {cluster!r} needs its project and region.", hint=advice("Add {project} and {region}.")
        )
    token = token_source()

    async def fetch() -> tuple[str, float]:
        value, expires = await asyncio.to_thread(token)
        return f"Bearer {value}", expires

    described = _describe(cluster, project, region, token)
    host, authority = _endpoint(described, cluster)
    return Cluster(
        name=f"gke_{project}_{region}_{cluster}",
        server=f"https://{host}",
        namespace="default",
        credentials=Renewable(fetch, hint=LOGIN),
        ssl=tls(authority),
        proxy=proxy_of_environment(f"https://{host}", os.environ),
    )


def token_source() -> Callable[[], tuple[str, float]]:
    """Return a blocking function that fetches an access token of Google's default credentials, and its expiry.

    Raises:
      ClusterError: There are no such credentials on this machine.
      ConfigError: gcloud is set to act as another account.
    """
    import google.auth
    import google.auth.exceptions
    import google.auth.transport.requests

    if account := os.environ.get("CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT"):
        # Not ignored: the user's own rights may be wider.
        raise ConfigError(
            f"gcloud is set to act as {account} (CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT), which is not done here.",
            hint=advice("Fetch the cluster's credentials with gcloud and use {context}, or unset the variable."),
        )
    path = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    try:
        # Files of any kind, also of workload identity federation; else gcloud's login; else the metadata server, which
        # answers for the machine, or for the pod's service account.
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except google.auth.exceptions.DefaultCredentialsError as error:
        if not path:
            raise no_credentials() from error
        raise ClusterError(
            f"GOOGLE_APPLICATION_CREDENTIALS names {path}, which cannot be used: {_one_line(error)}.",
            hint=f"Fix the file or unset the variable. {LOGIN}",
        ) from error
    except google.auth.exceptions.TransportError as error:
        # Some kinds of files name a project by its number, and the library looks its name up.
        raise ClusterError("Google cannot be reached.", hint=_NETWORK) from error

    def fetch() -> tuple[str, float]:
        # A new session each time: this runs rarely, and sessions are not thread-safe.
        request = google.auth.transport.requests.Request()
        try:
            credentials.refresh(request)
        except google.auth.exceptions.TransportError as error:
            raise ClusterError("Google's token endpoint cannot be reached.", hint=_NETWORK) from error
        except google.auth.exceptions.GoogleAuthError as error:
            detail = _one_line(error)
            hint = LOGIN
            if "iat" in detail and "exp" in detail:
                hint = "This machine's clock is wrong: set it, e.g. timedatectl set-ntp true."
            raise ClusterError(f"Google refused to issue a token: {detail}.", hint=hint) from error
        finally:
            request.session.close()
        # google-auth's datetimes are naive, but mean UTC.
        expiry = credentials.expiry
        return str(credentials.token), expiry.replace(tzinfo=UTC).timestamp() if expiry else float("inf")

    return fetch


def _one_line(error: BaseException) -> str:
    """Return what google-auth says of an error, whose further arguments repeat the whole answer."""
    said = error.args[0] if error.args else error
    return " ".join(str(said).split()).rstrip(".")


def _describe(cluster: str, project: str, region: str, token: Callable[[], tuple[str, float]]) -> Mapping[str, Any]:
    import requests

    # The variable with which gcloud is pointed at another endpoint, too.
    base = os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER") or _ENDPOINT
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
            hint=advice("Check the network, or use {context} with credentials that are already here."),
        ) from error
    if not response.ok:
        raise _refused(response, name, project)
    described: dict[str, Any] = response.json()
    return described


def _endpoint(described: Mapping[str, Any], cluster: str) -> tuple[str, bytes]:
    """Return the cluster's host and its certificate authority (empty: a public one).

    The DNS endpoint first, which needs no route into the cluster's network; else the address that gcloud uses.

    Raises:
      ClusterError: It has no endpoint.
    """
    dns = (described.get("controlPlaneEndpointsConfig") or {}).get("dnsEndpointConfig") or {}
    if dns.get("endpoint") and dns.get("allowExternalTraffic"):
        return dns["endpoint"], b""
    host, authority = described.get("endpoint"), (described.get("masterAuth") or {}).get("clusterCaCertificate")
    if not host or not authority:
        state = described.get("status", "in an unknown state")
        if dns.get("endpoint") and state == "RUNNING":
            raise ClusterError(
                f"GKE cluster {cluster} cannot be reached: its DNS endpoint takes no external traffic, and it has no "
                "IP endpoint.",
                hint=advice(
                    "Open the DNS endpoint, or ask your cluster administrator to: gcloud container clusters update "
                    "{cluster_name} --location=LOCATION --enable-dns-access.",
                    cluster_name=cluster,
                ),
            )
        raise ClusterError(
            f"GKE cluster {cluster} has no endpoint; it is {state}.", hint="Wait until it is RUNNING, and try again."
        )
    return host, base64.b64decode(authority)


def _refused(response: requests.Response, name: str, project: str) -> ApiError:
    status = response.status_code
    try:
        detail = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        detail = f"HTTP {status}"
    hints = {
        401: LOGIN,
        403: "Ask for the role Kubernetes Engine Cluster Viewer (roles/container.clusterViewer) on the project: gcloud "
        f"projects add-iam-policy-binding {project} --member user:YOU --role roles/container.clusterViewer.",
        404: advice(
            "Check {cluster}, {project} and {region}; this shows what there is: gcloud container "
            "clusters list --project {project}.",
            project=project,
        ),
    }
    if status == 403 and ("SERVICE_DISABLED" in response.text or "has not been used in project" in detail):
        return ApiError(
            f"The Kubernetes Engine API is disabled in project {project}.",
            status=status,
            reason="SERVICE_DISABLED",
            hint=f"Enable it: gcloud services enable container.googleapis.com --project {project}.",
        )
    return ApiError(
        f"Reading {name} from Google failed: {detail}", status=status, hint=hints.get(status, "Try again later.")
    )
