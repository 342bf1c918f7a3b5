"""A fake Google on loopback with two routes (token exchange, clusters.get), for processes that a test starts."""

import base64
import contextlib
import functools
import json
from collections.abc import Iterator
from pathlib import Path

import json_server
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


@contextlib.contextmanager
def serving(kubeconfig: Path, directory: Path, cluster: str) -> Iterator[dict[str, str]]:
    """Serve `cluster` ("projects/P/locations/L/clusters/C") as the one that `kubeconfig` leads to.

    Yields:
      The environment variables with which a process uses this Google.
    """
    cluster_facts, token = _facts(kubeconfig)
    answers = {
        "/token": {"access_token": token, "expires_in": 3600, "token_type": "Bearer"},
        f"/v1/{cluster}": cluster_facts,
    }

    def answer(request: json_server.Request, body: bytes) -> tuple[int, object]:
        if request.path in answers:
            return 200, answers[request.path]
        return 404, {"error": {"message": "Not found."}}

    with json_server.serving(answer) as base:
        yield variables(base, directory)


def variables(base: str, directory: Path) -> dict[str, str]:
    """Return the environment variables that lead a process to the Google at `base`, with an account in `directory`."""
    account = directory / "account.json"
    account.write_text(json.dumps(service_account(f"{base}/token")))
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": str(account),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER": f"{base}/",
    }


def _facts(kubeconfig: Path) -> tuple[dict[str, object], str]:
    """Return Google's description of the cluster, and the token that its API server accepts."""
    read = yaml.safe_load(kubeconfig.read_text())
    (cluster,), (user,) = read["clusters"], read["users"]
    authority = cluster["cluster"].get("certificate-authority-data")
    if authority is None:
        authority = base64.b64encode(Path(cluster["cluster"]["certificate-authority"]).read_bytes()).decode()
    return described(cluster["cluster"]["server"], authority), user["user"]["token"]


def described(url: str, authority: str) -> dict[str, object]:
    """Return Google's description of a cluster whose API server is at `url`."""
    endpoint = url.removeprefix("https://")
    return {"endpoint": endpoint, "masterAuth": {"clusterCaCertificate": authority}, "status": "RUNNING"}


@functools.cache
def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def service_account(token_uri: str) -> dict[str, str]:
    """Return the content of a service account's file."""
    return {
        "type": "service_account",
        "client_email": "robot@my-project.iam.gserviceaccount.com",
        "private_key_id": "1",
        "private_key": _private_key(),
        "token_uri": token_uri,
        "project_id": "my-project",
    }
