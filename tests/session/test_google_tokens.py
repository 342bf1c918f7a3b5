"""A session whose Google tokens expire all the time: a long one, compressed into seconds."""

import base64
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import fake_google
import json_server
import pytest
from watched_cluster import DEADLINE, Watched

from pathways_jupyter.kube.credentials import MARGIN_SECONDS

pytestmark = pytest.mark.thorough

CLUSTER = "/v1/projects/p/locations/us-east5/clusters/tpus"
RENEWALS = 4
SCRIPT = """
import sys
import jax.numpy as jnp
import pathways_jupyter

session = pathways_jupyter.connect(
    cluster="tpus", project="p", region="us-east5", tpu="tpuv6e:2x2=1", lease_seconds=10, wait=90, progress=False
)
array = jnp.arange(1000.0)
job = session.record.job
print("connected", flush=True)
sys.stdin.readline()
status = session.status()
print(float(array.sum()), status.state, status.generation, status.job == job, flush=True)
problems = [event.message for event in session.events() if event.kind == "warning"]
print(problems, repr(session.disconnect().left), flush=True)
"""


class ShortLived:
    """Google, whose tokens are valid for one request or two: each that is issued revokes the one before the last."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.issued = 0
        self._more = threading.Condition()

    def token(self):
        with self._more:
            self.issued += 1
            serial = self.issued
            self._more.notify_all()
        if serial > 2:
            self.cluster.revoke(serial - 2)
        # Due for renewal a moment after it was issued.
        seconds = int(MARGIN_SECONDS) + 1
        return {"access_token": self.cluster.new_token(serial), "expires_in": seconds, "token_type": "Bearer"}

    def wait(self, issued):
        with self._more:
            assert self._more.wait_for(lambda: self.issued >= issued, DEADLINE), self.issued

    def answer(self, request, body):
        if request.command == "POST":
            return 200, self.token()
        assert request.path == CLUSTER
        authority = base64.b64encode(self.cluster.ca.read_bytes()).decode()
        return 200, fake_google.described(self.cluster.url, authority)


@pytest.fixture
def home():
    # Not pytest's own directory: its names are long, and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pj-") as name:
        yield Path(name)


def test_a_session_outlives_its_tokens_and_loses_nothing(home, machine):
    (home / "cluster").mkdir()
    with Watched(home / "cluster") as cluster:
        google = ShortLived(cluster)
        with json_server.serving(google.answer) as base:
            environ = {
                **machine.environ,
                "HOME": str(home),
                "JUPYTER_RUNTIME_DIR": str(home / "rt"),
                **fake_google.variables(base, home),
                "NO_PROXY": "127.0.0.1",
            }
            with subprocess.Popen(
                [sys.executable, "-c", SCRIPT],
                env=environ,
                cwd=home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as script:
                assert script.stdout.readline() == "connected\n", script.stderr.read()
                # The lease is renewed every 2.5 s, each time with a newer token.
                google.wait(google.issued + RENEWALS)
                out, errors = script.communicate("go on\n", timeout=DEADLINE)
    assert out.splitlines() == ["499500.0 connected 1 True", "[] ''"], errors
    assert not (home / ".kube").exists()
