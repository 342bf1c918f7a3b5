"""Check that a bucket can be read, with Google's JSON API and default credentials.

The scratch bucket is used by the pods of a service, with the identity of their node or service account. This check uses
the identity of the person who deploys: it finds a misspelled bucket, and says nothing about the pods' own rights.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.kube import google

ENDPOINT_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"
"""The variable with which gcloud is pointed at another endpoint than the public one."""

_ENDPOINT = "https://storage.googleapis.com/storage/v1/"
_TIMEOUT_SECONDS = 20.0


def read(location: str) -> None:
    """List one object at `location` (``gs://BUCKET/PATH``); blocks.

    Raises:
      ApiError: There is no such bucket (404), or these credentials may not list it (403).
      ClusterError: There are no Google credentials here, or Google cannot be reached.
    """
    import requests

    bucket, _, prefix = location.removeprefix("gs://").partition("/")
    token, _ = google.token_source()()
    base = (os.environ.get(ENDPOINT_VARIABLE) or _ENDPOINT).rstrip("/")
    try:
        response = requests.get(
            f"{base}/b/{quote(bucket, safe='')}/o",
            params={"maxResults": "1", "prefix": prefix, "fields": "kind"},
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_SECONDS,
        )
    except requests.RequestException as error:
        raise ClusterError(
            f"Google's Cloud Storage API cannot be reached: {type(error).__name__}.", hint="Check the network."
        ) from error
    if response.ok:
        return
    hints = {
        401: "Sign in again: gcloud auth application-default login.",
        403: f"Ask for roles/storage.objectUser on gs://{bucket}, for yourself and for the nodes' service account.",
        404: f"Check --gcs-bucket, or create it: gcloud storage buckets create gs://{bucket}.",
    }
    said = {403: "may not be read with your credentials", 404: "does not exist"}.get(
        response.status_code, f"cannot be read: HTTP {response.status_code}"
    )
    raise ApiError(
        f"Bucket gs://{bucket} {said}.",
        status=response.status_code,
        hint=hints.get(response.status_code, "Try again in a moment."),
    )
