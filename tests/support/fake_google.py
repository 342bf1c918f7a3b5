"""A fake Google on loopback with two routes (token exchange, clusters.get), for processes that a test starts."""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


@contextlib.contextmanager
def serving(kubeconfig: Path, directory: Path, cluster: str) -> Iterator[dict[str, str]]:
    """Serve `cluster` ("projects/P/locations/L/clusters/C") as the one that `kubeconfig` leads to.

    Yields:
      The environment variables with which a process uses this Google.
    """
    described, token = _facts(kubeconfig)
    answers = {
        "/token": {"access_token": token, "expires_in": 3600, "token_type": "Bearer"},
        f"/v1/{cluster}": described,
    }

    class Routes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path in answers
            body = json.dumps(answers[self.path] if known else {"error": {"message": "Not found."}}).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Routes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}/"
        account = directory / "account.json"
        account.write_text(json.dumps(service_account(f"{base}token")))
        yield {
            "GOOGLE_APPLICATION_CREDENTIALS": str(account),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER": base,
        }
        server.shutdown()


def _facts(kubeconfig: Path) -> tuple[dict[str, object], str]:
    """Return Google's description of the cluster, and the token that its API server accepts."""
    read = yaml.safe_load(kubeconfig.read_text())
    (cluster,), (user,) = read["clusters"], read["users"]
    authority = cluster["cluster"].get("certificate-authority-data")
    if authority is None:
        authority = base64.b64encode(Path(cluster["cluster"]["certificate-authority"]).read_bytes()).decode()
    endpoint = cluster["cluster"]["server"].removeprefix("https://")
    described = {"endpoint": endpoint, "masterAuth": {"clusterCaCertificate": authority}, "status": "RUNNING"}
    return described, user["user"]["token"]


def service_account(token_uri: str) -> dict[str, str]:
    """Return the content of a service account's file, with a key of its own."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "client_email": "robot@my-project.iam.gserviceaccount.com",
        "private_key_id": "1",
        "private_key": private.decode(),
        "token_uri": token_uri,
        "project_id": "my-project",
    }
