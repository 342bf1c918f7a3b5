"""Validation of names and labels, and generated names."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import invalid
from pathways_jupyter.local.apiserver.resources import NAMESPACES, SERVICES, ResourceType

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PATH_SEGMENT = re.compile(r"(?!\.\.?$)[^/%]+")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def name_of(resource: ResourceType, metadata: Mapping[str, Any]) -> str:
    """The name of a new object, generated if it has only a ``generateName``.

    Raises:
      StatusError: 422, there is none or it may not be used.
    """
    name = metadata.get("name")
    if not name and metadata.get("generateName"):
        name = f"{metadata['generateName']}"[:58] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
    if not name:
        raise invalid(resource, "", [("metadata.name", "Required value: name or generateName is required")])
    pattern, limit = _rule(resource)
    if not isinstance(name, str) or len(name) > limit or not pattern.fullmatch(name):
        why = (
            f'Invalid value: "{name}": a lowercase RFC 1123 name consists of lower case alphanumeric characters,'
            f" '-' or '.', must start and end with an alphanumeric character, and has at most {limit} characters"
        )
        raise invalid(resource, str(name), [("metadata.name", why)])
    return name


def check_labels(resource: ResourceType, metadata: Mapping[str, Any]) -> None:
    """Validate labels and annotations.

    Raises:
      StatusError: 422, one has a key or a value that it may not have.
    """
    causes = []
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            if not _LABEL_KEY.fullmatch(key):
                causes.append((f"metadata.{field}", f'Invalid value: "{key}": not a qualified name'))
            elif not isinstance(value, str) or (field == "labels" and not _LABEL_VALUE.fullmatch(value)):
                causes.append((f"metadata.{field}", f'Invalid value: "{value}": not a valid value for {key}'))
    if causes:
        raise invalid(resource, str(metadata.get("name", "")), causes)


def _rule(resource: ResourceType) -> tuple[re.Pattern[str], int]:
    if resource.key in (NAMESPACES.key, SERVICES.key):
        return _LABEL, 63
    if resource.group == "rbac.authorization.k8s.io":
        return _PATH_SEGMENT, 253
    return _SUBDOMAIN, 253
