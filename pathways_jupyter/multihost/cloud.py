"""Google's APIs for TPU VMs: credentials, client, project and zone, and their errors in plain words."""

from __future__ import annotations

import configparser
import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError
from pathways_jupyter.base.google import LOGIN, no_credentials
from pathways_jupyter.base.packages import require

ENDPOINT_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"
"""The variable with which gcloud is pointed at another endpoint than the public one."""

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_HINTS: Mapping[int, str] = {
    401: LOGIN,
    403: "Ask for the role TPU Admin (roles/tpu.admin) on the project, and check that the Cloud TPU API is enabled.",
    404: "Check --project and --zone; gcloud compute tpus tpu-vm list --zone ZONE shows what there is.",
}
"""Advice for an error of the Cloud TPU API, by its status code."""


def client(project: str, zone: str) -> tuple[Any, str]:
    """Return a client of the Cloud TPU API with Google's default credentials, and its name of project and zone.

    Raises:
      ConfigError: The client library is not installed, or project or zone is not known.
      ClusterError: There are no Google credentials on this machine.
    """
    parent = location(project, zone)
    require("hosts", "The Cloud TPU API", "google.api_core", "google.cloud.tpu_v2")
    import google.auth
    import google.auth.exceptions
    from google.api_core.client_options import ClientOptions
    from google.cloud import tpu_v2

    try:
        account, _ = google.auth.default(scopes=[_SCOPE])
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise no_credentials() from error
    endpoint = os.environ.get(ENDPOINT_VARIABLE, "").rstrip("/")
    # Credentials of a sovereign cloud are refused by a client that was not made for the same one.
    options = ClientOptions(api_endpoint=endpoint or None, universe_domain=getattr(account, "universe_domain", None))
    return tpu_v2.TpuClient(credentials=account, transport="rest", client_options=options), parent


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn the errors of Google's libraries into this package's, which say that `what` failed.

    Raises:
      ApiError: The API answered with an error.
      ClusterError: It could not be reached, or there is no token.
    """
    import google.api_core.exceptions
    import google.auth.exceptions
    import requests

    try:
        with interrupts.raise_sigint():
            yield
    except google.api_core.exceptions.GoogleAPICallError as error:
        status = int(error.code or 0)
        raise ApiError(
            f"{what} failed: {_sentence(error.message)}", status=status, hint=_HINTS.get(status, "Try again later.")
        ) from error
    except google.auth.exceptions.GoogleAuthError as error:
        raise ClusterError(f"Google refused to issue a token: {_sentence(str(error.args[0]))}", hint=LOGIN) from error
    except (requests.RequestException, google.api_core.exceptions.GoogleAPIError) as error:
        raise ClusterError(
            f"{what} failed: Google's API cannot be reached ({type(error).__name__}).", hint="Check the network."
        ) from error


def location(project: str, zone: str) -> str:
    """Return the API's name of project and zone; those that are empty come from gcloud's settings.

    Raises:
      ConfigError: One of them is not set anywhere.
    """
    set_project, set_zone = _gcloud()
    environ = os.environ
    project = project or environ.get("CLOUDSDK_CORE_PROJECT") or environ.get("GOOGLE_CLOUD_PROJECT") or set_project
    zone = zone or environ.get("CLOUDSDK_COMPUTE_ZONE") or set_zone
    for name, value in (("project", project), ("zone", zone)):
        if not value:
            setting = "core/project" if name == "project" else "compute/zone"
            raise ConfigError(f"Which {name}?", hint=f"Add --{name}, or run gcloud config set {setting} VALUE.")
    return f"projects/{project}/locations/{zone}"


def _gcloud() -> tuple[str, str]:
    """Return project and zone of gcloud's active configuration; empty where they are not set."""
    root = Path(os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config/gcloud")
    name = os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME", "")
    with contextlib.suppress(OSError):
        name = name or (root / "active_config").read_text(encoding="utf-8").strip()
    parser = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
        parser.read(root / "configurations" / f"config_{name or 'default'}", encoding="utf-8")
    return parser.get("core", "project", fallback=""), parser.get("compute", "zone", fallback="")


def _sentence(text: str) -> str:
    words = " ".join(str(text).split())
    return words if words.endswith(".") else f"{words}."
