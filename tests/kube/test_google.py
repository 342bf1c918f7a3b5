"""Google is replaced by a loopback server with the two protocols: OAuth2 token exchange, and clusters.get."""

import asyncio
import base64
import json
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pathways_jupyter.errors import ApiError, ClusterError, ConfigError
from pathways_jupyter.kube import auth

PATH = "/v1/projects/p/locations/us-east5/clusters/tpus"


@pytest.fixture(scope="module")
def private_key():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


@pytest.fixture
async def google(tmp_path, monkeypatch, private_key):
    """A Google of two routes; `describe` is its answer about the cluster, `tokens` how many it has issued."""

    played = SimpleNamespace(describe={}, status=200, tokens=0, refuse=False)

    async def token(request):
        form = parse_qs(await request.text())
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        assert form["assertion"][0].count(".") == 2
        if played.refuse:
            return web.json_response({"error": "invalid_grant", "error_description": "Account disabled"}, status=400)
        played.tokens += 1
        return web.json_response({"access_token": f"ya29.{played.tokens}", "expires_in": 3600, "token_type": "Bearer"})

    async def cluster(request):
        if not request.headers["Authorization"].startswith("Bearer ya29."):
            return web.json_response({"error": {"message": "no"}}, status=401)
        if played.status != 200:
            message = {403: "Permission denied on cluster.", 404: "Not found: tpus."}[played.status]
            return web.json_response({"error": {"message": message}}, status=played.status)
        return web.json_response(played.describe)

    app = web.Application()
    app.router.add_post("/token", token)
    app.router.add_get(PATH, cluster)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    account = tmp_path / "account.json"
    account.write_text(
        json.dumps(
            {
                "type": "service_account",
                "client_email": "robot@p.iam.gserviceaccount.com",
                "private_key_id": "1",
                "private_key": private_key,
                "token_uri": f"{base}token",
                "project_id": "p",
            }
        )
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER", base)
    yield played
    await runner.cleanup()


def load():
    return asyncio.to_thread(auth.load, cluster="tpus", project="p", region="us-east5")


async def test_a_cluster_is_found_by_name_and_opened_with_the_same_token(google, self_signed):
    google.describe = {
        "endpoint": "203.0.113.7",
        "masterAuth": {"clusterCaCertificate": base64.b64encode(self_signed.encode()).decode()},
    }
    found = await load()
    assert (found.server, found.name) == ("https://203.0.113.7", "gke_p_us-east5_tpus")
    assert (await found.credentials.authorization()).startswith("Bearer ya29.")


async def test_the_dns_endpoint_is_preferred_where_it_may_be_used_from_outside(google):
    google.describe = {
        "endpoint": "203.0.113.7",
        "controlPlaneEndpointsConfig": {
            "dnsEndpointConfig": {"endpoint": "gke-1.us-east5.gke.goog", "allowExternalTraffic": True}
        },
    }
    assert (await load()).server == "https://gke-1.us-east5.gke.goog"


async def test_a_refused_token_is_exchanged_anew(google):
    google.describe = {
        "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "x", "allowExternalTraffic": True}}
    }
    found = await load()
    first = await found.credentials.authorization()
    assert await found.credentials.authorization() == first
    assert await found.credentials.renew()
    assert await found.credentials.authorization() != first


@pytest.mark.parametrize(("status", "hint"), [(403, "clusterViewer"), (404, "--region")])
async def test_what_google_refuses_is_reported_with_a_hint(google, status, hint):
    google.status = status
    with pytest.raises(ApiError) as raised:
        await load()
    assert raised.value.status == status
    assert hint in raised.value.hint


async def test_a_disabled_account_is_reported(google):
    google.refuse = True
    with pytest.raises(ClusterError, match="Google refused to issue a token") as raised:
        await load()
    assert "gcloud auth" in raised.value.hint


async def test_a_cluster_that_is_still_being_made_is_reported(google):
    google.describe = {"status": "PROVISIONING"}
    with pytest.raises(ClusterError, match="PROVISIONING"):
        await load()


async def test_a_google_that_cannot_be_reached_is_reported(google, monkeypatch, unused_port):
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER", f"http://127.0.0.1:{unused_port}")
    with pytest.raises(ClusterError, match="cannot be reached"):
        await load()


async def test_a_machine_without_google_credentials_is_reported(tmp_path, monkeypatch, unused_port):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(ClusterError, match="no Google credentials"):
        await load()


def test_a_cluster_needs_its_project_and_region():
    with pytest.raises(ConfigError, match="needs its project and region"):
        auth.load(cluster="tpus")
