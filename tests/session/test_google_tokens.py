"""A session whose Google tokens expire all the time: a long one, compressed into seconds."""

import base64
import json
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fake_google import service_account
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

    def described(self):
        endpoint = self.cluster.url.removeprefix("https://")
        authority = base64.b64encode(self.cluster.ca.read_bytes()).decode()
        return {"endpoint": endpoint, "masterAuth": {"clusterCaCertificate": authority}, "status": "RUNNING"}

    def wait(self, issued):
        with self._more:
            assert self._more.wait_for(lambda: self.issued >= issued, DEADLINE), self.issued

    @contextmanager
    def serving(self):
        google = self

        class Routes(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(google.token())

            def do_GET(self):
                assert self.path == CLUSTER
                self._answer(google.described())

            def _answer(self, value):
                body = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Routes) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_address[1]}/"
            server.shutdown()


@pytest.fixture
def home():
    # Not pytest's own directory: its names are long, and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pj-") as name:
        yield Path(name)


def test_a_session_outlives_its_tokens_and_loses_nothing(home, machine):
    (home / "cluster").mkdir()
    account = home / "account.json"
    with Watched(home / "cluster") as cluster:
        google = ShortLived(cluster)
        with google.serving() as base:
            account.write_text(json.dumps(service_account(f"{base}token")))
            environ = {
                **machine.environ,
                "HOME": str(home),
                "JUPYTER_RUNTIME_DIR": str(home / "rt"),
                "GOOGLE_APPLICATION_CREDENTIALS": str(account),
                "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER": base,
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
