"""Read the Role of docs/permissions.md."""

import re
from pathlib import Path

import yaml

DOCUMENT = Path(__file__).parents[2] / "docs" / "permissions.md"

Grant = tuple[str, str, str]
"""Group, resource with its subresource, verb."""


def documents() -> list[dict]:
    """Return all YAML objects of the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return [yaml.safe_load(found) for found in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def documented_rules() -> list[dict]:
    """Return the rules of the documented Role."""
    (role,) = [each for each in documents() if each["kind"] == "Role"]
    return role["rules"]


def documented_grants() -> set[Grant]:
    """Return the single permissions of the documented Role."""
    return {
        (group, resource, verb)
        for rule in documented_rules()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def as_rules(grants: set[Grant]) -> list[dict]:
    """Return rules that allow only `grants`."""
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb]} for group, resource, verb in sorted(grants)
    ]
