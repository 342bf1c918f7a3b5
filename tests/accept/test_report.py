"""The report: what it leaves out, and what it says."""

import pytest

from pathways_jupyter.accept.plan import CheckResult, Outcome
from pathways_jupyter.accept.report import Report, markdown, publishable
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.kube.credentials import Fixed
from pathways_jupyter.render import checks
from pathways_jupyter.service.names import current_user

SERVER = "https://gke-1a2b.us-east5.gke.goog"
CONFIG = ConnectConfig(context="gke_acme-tpus_us-east5_big", project="acme-tpus")
CLUSTER = Cluster("big", SERVER, "default", Fixed(hint=""))


def report(*results: CheckResult, left=()) -> Report:
    return Report(0.0, 1.0, results, left, interrupted=False)


@pytest.fixture(autouse=True)
def home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/jane")


def masked(line: str) -> str:
    made = report(CheckResult("connect", "", Outcome.FAILED, 1.0, (line,)), left=(line,))
    made = publishable(made, CONFIG, CLUSTER)
    assert made.left == made.results[0].lines
    return made.left[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"No answer from {SERVER}/api.", "No answer from <server>/api."),
        ("gke-1a2b.us-east5.gke.goog does not resolve", "<server> does not resolve"),
        ("context gke_acme-tpus_us-east5_big", "context <cluster>"),
        ('User "ann@acme.example" cannot list pods', 'User "<user>" cannot list pods'),
        ("ask ann.b@acme.example", "ask <e-mail>"),
        ("accepted, as system:serviceaccount:tpu:lab", "accepted, as <user>"),
        ("Pod pathways-proxy-ann-b-37f35af4da-kl2bp is ready", "Pod pathways-proxy-<user>-37f35af4da-kl2bp is ready"),
        ("no file /home/jane/.kube/config", "no file ~/.kube/config"),
        (f"{current_user()}: not found", "<user>: not found"),
        ("2 are wanted: ann (a/b.ipynb) holds 1 for 5 min", "2 are wanted: <user> holds 1 for 5 min"),
        ("dial 10.0.12.7:443", "dial <address>:443"),
        ("gs://acme-scratch/tmp", "gs://<bucket>/tmp"),
        ("us-docker.pkg.dev/acme-tpus/pw/proxy_server:1", "<registry>/proxy_server:1"),
        ("Bearer ya29.a0Af_x-y", "Bearer <token>"),
        ("eyJhbGci.eyJpc3Mi.c2ln", "<token>"),
        ("JAX 0.10.2, 256 × 384", "JAX 0.10.2, 256 × 384"),
    ],
)
def test_names_addresses_and_tokens_are_replaced(line, said):
    assert masked(line) == said


def test_the_file_has_each_check_and_why_one_was_skipped():
    passed = CheckResult("connect", "get a proxy", Outcome.PASSED, 1.24, ("first", "two\nlines"))
    skipped = CheckResult("lease", "kill it", Outcome.SKIPPED, 0.0, ("not chosen",))
    said = markdown(report(passed, skipped, left=("session 1",)), "1 passed")
    too = CheckResult("elastic", "train", Outcome.SKIPPED, 0.0, ("not chosen",))
    shown = checks.outcome(report(passed, skipped, too)).text
    assert "1 passed, 2 skipped" in shown
    assert "Skipped: lease, elastic (not chosen)." in shown
    assert "| connect | passed | 1.2 | get a proxy |" in said
    assert "| lease | skipped: not chosen | 0.0 | kill it |" in said
    assert "Left behind: session 1." in said
    assert "## connect\n\n    first\n    two\n    lines" in said
    assert "## lease" not in said
