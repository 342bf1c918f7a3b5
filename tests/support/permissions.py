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


USER, LAB, PLATFORM = "pathways-jupyter-user", "pathways-jupyter-lab", "pathways-platform"
IN_CLUSTER, QUEUES = "pathways-jupyter-in-cluster", "pathways-jupyter-queues"
INSTALL, HOSTS, FAULTS = "pathways-operator-install", "pathways-jupyter-hosts", "pathways-jupyter-faults"


def documented_rules(name: str = USER) -> list[dict]:
    """Return the rules of a documented Role."""
    # A ClusterRole of the same name holds what no Role can give.
    kinds = {"Role", "ClusterRole"}
    roles = [each for each in documents() if each["kind"] in kinds and each["metadata"]["name"] == name]
    return [rule for role in roles for rule in role["rules"]]


def documented_grants(name: str = USER) -> set[Grant]:
    """Return the single permissions of a documented Role."""
    return {
        (group, resource, verb)
        for rule in documented_rules(name)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def as_rules(grants: set[Grant]) -> list[dict]:
    """Return rules that allow only `grants`."""
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb]} for group, resource, verb in sorted(grants)
    ]
