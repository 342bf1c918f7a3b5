"""The JobSets of google/pathways-job v0.1.4, for its own samples and its own test, beside ours: field by field."""

import re
from pathlib import Path

import pytest
from upstream_jobs import ANNOTATED, BESIDE, COLOCATED_PYTHON, ELASTIC_TRAINING, TRIAL, jobset

from pathways_jupyter.service.pathwaysjob import expansion

DOCUMENT = Path(__file__).parents[2] / "docs" / "jobs.md"

# The fields that differ, and how their row in docs/jobs.md begins, which gives the reason.
DIFFERENCES = {
    r"metadata/labels/(app.kubernetes.io/managed-by|pathways-jupyter/pathwaysjob)": "labels",
    r"pathways-head/.*/spec/(hostNetwork|dnsPolicy)": "network of the head",
    r"pathways-head/.*/template/spec/restartPolicy": "`restartPolicy` of the head",
    r"/affinity/": "affinity",
    r"/pathways-rm/resources/limits/memory": "memory of the resource manager",
    r"/pathways-proxy/env/IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS/": "ALTS",
    r"/pathways-proxy/args/--sidecar_name|/shared-memory/|idecar_shm_directory|SIDECAR_SHM": "colocated sidecar",
    r"/colocated-python-sidecar/env/GRPC_SERVER_ADDRESS/value": "colocated sidecar",
    r"pathways-head/.*/metadata/annotations/alpha": "exclusive placement of the head",
    r"worker/template/metadata/annotations": "exclusive placement of the workers",
}


def flat(value, path=""):
    """The leaves of a manifest, by the names of list items; of two flags of a name the last one counts."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from flat(each, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            if path.endswith("/args"):
                flag, _, text = each.partition("=")
                yield f"{path}/{flag}", text
            else:
                yield from flat(each, f"{path}/{each.get('name', number) if isinstance(each, dict) else number}")
        if path.endswith("ontainers"):
            yield f"{path}/order", [each["name"] for each in value]
    else:
        yield path.lstrip("/"), value


@pytest.mark.parametrize(
    "job", [COLOCATED_PYTHON, ELASTIC_TRAINING, TRIAL, ANNOTATED, BESIDE], ids=lambda job: job["metadata"]["name"]
)
def test_the_jobset_is_googles_but_for_what_the_documentation_lists(job):
    ours, theirs = dict(flat(expansion.expand(job))), dict(flat(jobset(job)))
    # JobSet's own defaults.
    for default in ("jobIndex", "podIndex"):
        del theirs[f"spec/coordinator/{default}"]
    different = {path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path)}
    unlisted = {path for path in different if not any(re.search(pattern, path) for pattern in DIFFERENCES)}
    assert not {path: (ours.get(path), theirs.get(path)) for path in unlisted}


def test_the_documentation_gives_a_reason_for_each_difference():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    reasons = {row[0]: row[3] for row in rows}
    for what in DIFFERENCES.values():
        assert len(reasons.get(what, "")) > 20, what
