"""Read the Roles that docs/permissions.md shows and `pathways-jupyter manifests roles` prints."""

import re
from pathlib import Path

import yaml

from pathways_jupyter.service import permissions

DOCUMENT = Path(__file__).parents[2] / "docs" / "permissions.md"

Grant = tuple[str, str, str]
"""Group, resource with its subresource, verb."""


def documents() -> list[dict]:
    """Return the YAML objects that are written in the page itself."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return [yaml.safe_load(found) for found in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


USER, LAB, PLATFORM = "pathways-jupyter-user", "pathways-jupyter-lab", "pathways-platform"
IN_CLUSTER, QUEUES, JOB_USER = "pathways-jupyter-in-cluster", "pathways-jupyter-queues", "pathways-jupyter-jobs"
INSTALL, HOSTS, FAULTS = "pathways-operator-install", "pathways-jupyter-hosts", "pathways-jupyter-faults"


def documented_rules(name: str = USER) -> list[dict]:
    """Return the rules of a Role, and of the ClusterRole of the same name, which holds what no Role can give."""
    return [rule for role in permissions.manifests(name) for rule in role["rules"]]


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
