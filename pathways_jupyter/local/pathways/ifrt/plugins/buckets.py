"""Files that the proxy writes to a bucket of the cluster: Google's JSON API, where its pod's environment says it is."""

from __future__ import annotations

import os

import requests

from pathways_jupyter.local.pathways.ifrt import statuses
from pathways_jupyter.local.pathways.ifrt.statuses import Code, IfrtStatusError

SCHEME = "gs://"
_ADDRESS = "STORAGE_EMULATOR_HOST"
_SECONDS = 60


def split(location: str) -> tuple[str, str]:
    """Return the bucket and the directory of ``gs://BUCKET/DIRECTORY``.

    Raises:
      IfrtStatusError: It is something else.
    """
    bucket, _, directory = location.removeprefix(SCHEME).partition("/")
    if not location.startswith(SCHEME) or not bucket:
        raise statuses.invalid(f"{location!r} is not a location in a bucket, {SCHEME}BUCKET/DIRECTORY")
    return bucket, directory.strip("/")


def require(bucket: str) -> None:
    """Check that there is such a bucket.

    Raises:
      IfrtStatusError: NOT_FOUND, or UNAVAILABLE.
    """
    _request("GET", f"storage/v1/b/{bucket}", bucket)


def write(bucket: str, name: str, content: bytes) -> None:
    """Write one object.

    Raises:
      IfrtStatusError: NOT_FOUND, or UNAVAILABLE.
    """
    _request("POST", f"upload/storage/v1/b/{bucket}/o", bucket, {"uploadType": "media", "name": name}, content)


def _request(
    method: str, path: str, bucket: str, params: dict[str, str] | None = None, content: bytes | None = None
) -> None:
    address = os.environ.get(_ADDRESS)
    if not address:
        raise statuses.unimplemented(f"this proxy has no bucket: {_ADDRESS} is not in its environment")
    try:
        answer = requests.request(method, f"{address}/{path}", params=params, data=content, timeout=_SECONDS)
    except requests.RequestException as error:
        raise IfrtStatusError(Code.UNAVAILABLE, f"{SCHEME}{bucket} cannot be reached: {error}") from None
    if answer.status_code == requests.codes.not_found:
        raise IfrtStatusError(Code.NOT_FOUND, f"there is no bucket {SCHEME}{bucket}")
    if not answer.ok:
        raise IfrtStatusError(Code.UNAVAILABLE, f"{SCHEME}{bucket} answered {answer.status_code}")
