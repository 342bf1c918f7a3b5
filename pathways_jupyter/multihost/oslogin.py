"""OS Login: the user's POSIX name on Google Cloud's VMs, and the key with which that user logs in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.multihost import cloud

ENDPOINT_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_OSLOGIN"
COMPUTE_ENDPOINT_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"
"""The variables with which gcloud is pointed at other endpoints than the public ones."""

_PUBLIC = "https://oslogin.googleapis.com/"
_COMPUTE = "https://compute.googleapis.com/compute/v1/"
_SWITCH = "enable-oslogin"
_HINTS: Mapping[int, str] = {
    **cloud.HINTS,
    403: "Ask for the role Compute OS Login (roles/compute.osLogin) on the project, and check that the Cloud OS Login "
    "API is enabled.",
    404: "Check that the account of your credentials exists: gcloud auth application-default login.",
}


def is_on(metadata: Mapping[str, str]) -> bool | None:
    """Return whether a VM's own metadata, or a project's, turns OS Login on; None if it does not say."""
    value = metadata.get(_SWITCH)
    return None if value is None else value.strip().upper() in {"TRUE", "1", "Y", "YES"}


def is_on_in_project(session: Any, project: str) -> bool:
    """Return whether a project turns OS Login on for all its VMs.

    Args:
      session: See :func:`~pathways_jupyter.multihost.cloud.session`.

    Raises:
      ApiError: The Compute Engine API refused.
      ClusterError: It cannot be reached.
    """
    root = os.environ.get(COMPUTE_ENDPOINT_VARIABLE) or _COMPUTE
    with cloud.explained(f"Reading the metadata of project {project}"):
        found = cloud.ask(session, "GET", f"{root.rstrip('/')}/projects/{quote(project)}")
    items = (found.get("commonInstanceMetadata") or {}).get("items") or []
    return bool(is_on({str(each.get("key")): str(each.get("value")) for each in items}))


def user(session: Any, project: str, key: Path) -> str:
    """Return the user's POSIX name, after a public key was added to the user's profile if it is not in it.

    Args:
      session: See :func:`~pathways_jupyter.multihost.cloud.session`.
      key: The public key's file.

    Raises:
      ConfigError: There is no such key, no account is known, or the account has no POSIX name.
      ApiError: The OS Login API refused.
      ClusterError: It cannot be reached.
    """
    if not key.is_file():
        raise ConfigError(
            f"OS Login needs a key, and there is no {key}.", hint=f"Make one: ssh-keygen -f {key.with_suffix('')}."
        )
    account = cloud.account(session.credentials)
    root = (os.environ.get(ENDPOINT_VARIABLE) or _PUBLIC).rstrip("/")
    place, project = f"{root}/v1/users/{quote(account)}", quote(project)
    text = key.read_text(encoding="utf-8").strip()
    with cloud.explained(f"Reading the OS Login profile of {account}", _HINTS):
        profile = cloud.ask(session, "GET", f"{place}/loginProfile?projectId={project}")
    known = [str(each.get("key", "")) for each in (profile.get("sshPublicKeys") or {}).values()]
    name = _posix_name(profile)
    if not name or not any(each.split()[:2] == text.split()[:2] for each in known):
        with cloud.explained(f"Adding your key to the OS Login profile of {account}", _HINTS):
            answer = cloud.ask(session, "POST", f"{place}:importSshPublicKey?projectId={project}", {"key": text})
        name = _posix_name(answer.get("loginProfile") or {}) or name
    if not name:
        raise ConfigError(
            f"OS Login knows no POSIX account of {account}.", hint="Ask your administrator, or name the user: --user."
        )
    return name


def _posix_name(profile: Mapping[str, Any]) -> str:
    """Return the name of the primary account for Linux, or of any."""
    accounts = [each for each in profile.get("posixAccounts") or [] if each.get("username")]
    linux = [each for each in accounts if each.get("operatingSystemType", "LINUX") != "WINDOWS"]
    return next((str(each["username"]) for each in sorted(linux, key=lambda each: not each.get("primary"))), "")
