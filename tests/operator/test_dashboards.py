"""The dashboard, the alert rules and the query for chip-hours ask for metrics and labels that the operator exports."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pathways_jupyter.base.events import SessionState
from pathways_jupyter.operator import metrics_server
from pathways_jupyter.service.model import Service
from pathways_jupyter.service.podstate import State
from pathways_jupyter.service.session_figures import SessionFigures

DOCS = Path(__file__).parents[2] / "docs"
OPERATIONS = DOCS / "operations"
GRAFANA = re.compile(r"\$(__\w+|\w+)|\[[^]]*\]")
WORDS = {"sum", "by", "rate", "increase", "and", "or", "on", "max", "absent", "sum_over_time"}


def expressions():
    for panel in json.loads((OPERATIONS / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for group in yaml.safe_load((OPERATIONS / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    # No highlighter of the documentation knows queries in queries.
    blocks = re.findall(r"```text\n(.*?)```", (DOCS / "operations.md").read_text(), re.DOTALL)
    queries = [block for block in blocks if "pathways_" in block]
    assert queries
    for query in queries:
        yield "docs/operations.md", query


@pytest.fixture(scope="module")
def exported():
    """The labels of each metric that an operator exports, by name."""
    session = SessionFigures("s", "jane", "default", "x", SessionState.CONNECTED, 0.0, 0, sent=1, received=1, idle=1.0)
    service = Service("x", "default", "x:29001", "tpuv6e:2x2", State.READY, (), (), True)
    found = [*metrics_server.of_services([("c", service)]), *metrics_server.of_sessions([session])]
    labels = {}
    for family in text_string_to_metric_families(generate_latest(SimpleNamespace(collect=lambda: found)).decode()):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    own = {"pathways_up": set(), "pathways_operator_api_requests_total": {"method", "status"}}
    seconds = "pathways_operator_reconcile_seconds"
    return {**labels, **own, f"{seconds}_sum": set(), f"{seconds}_count": set()}


@pytest.mark.parametrize(("title", "expression"), list(expressions()), ids=lambda value: value[:40])
def test_each_expression_names_metrics_and_labels_that_there_are(exported, title, expression):
    plain = re.sub(r'"[^"]*"', '""', GRAFANA.sub("", expression))
    named = set(re.findall(r"pathways_\w+", plain))
    assert named
    assert named <= set(exported), title
    labels = set().union(*(exported[name] for name in named))
    assert set(re.findall(r"[a-z_]+", plain)) - WORDS - named <= labels, title
