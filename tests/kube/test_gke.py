"""Google is replaced by a loopback server with the two protocols: OAuth2 token exchange, and clusters.get."""

import asyncio
import base64
import json
import os
import sys
from types import SimpleNamespace
from urllib.parse import parse_qs

import fake_google
import json_server
import pytest
from aiohttp import web

from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError
from pathways_jupyter.kube import auth
from pathways_jupyter.kube import gke as gke

PATH = "/v1/projects/p/locations/us-east5/clusters/tpus"


@pytest.fixture
def google(tmp_path, monkeypatch):
    """A Google of three routes; `describe` is its answer about the cluster, `tokens` how many it has issued."""

    played = SimpleNamespace(describe={}, status=200, tokens=0, refuse="", reason="", base="")

    def issued(kind=""):
        played.tokens += 1
        return {"access_token": f"ya29.{kind}{played.tokens}", "expires_in": 3600, "token_type": "Bearer"}

    def token(form):
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        assert form["assertion"][0].count(".") == 2
        if played.refuse:
            return 400, {"error": "invalid_grant", "error_description": played.refuse}
        return 200, issued()

    def cluster(authorization):
        if not authorization.startswith("Bearer ya29."):
            return 401, {"error": {"message": "no"}}
        if played.status != 200:
            message = {403: "Permission denied on cluster.", 404: "Not found: tpus."}[played.status]
            return played.status, {"error": {"message": message, "details": [{"reason": played.reason}]}}
        return 200, played.describe

    def exchange(form):
        """Workload identity federation: a token of another issuer for one of Google's."""
        assert form["subject_token"] == ["of-the-pod"]
        return 200, issued("federated") | {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}

    def answer(request, body):
        if request.path == PATH:
            return cluster(request.headers["Authorization"])
        return {"/sts": exchange, "/token": token}[request.path](parse_qs(body.decode()))

    with json_server.serving(answer) as played.base:
        for name, value in {**fake_google.variables(played.base, tmp_path), "NO_PROXY": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield played


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


async def test_a_cluster_that_is_closed_to_the_outside_says_what_opens_it(google):
    google.describe = {
        "status": "RUNNING",
        "controlPlaneEndpointsConfig": {
            "dnsEndpointConfig": {"endpoint": "gke-1.us-east5.gke.goog", "allowExternalTraffic": False}
        },
    }
    with pytest.raises(ClusterError, match="its DNS endpoint takes no external traffic") as refused:
        await load()
    assert "gcloud container clusters update tpus --location=LOCATION --enable-dns-access" in refused.value.hint


async def test_a_refused_token_is_exchanged_anew(google):
    google.describe = {
        "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "x", "allowExternalTraffic": True}}
    }
    found = await load()
    first = await found.credentials.authorization()
    assert await found.credentials.authorization() == first
    assert await found.credentials.renew()
    assert await found.credentials.authorization() != first


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (403, "gcloud projects add-iam-policy-binding p --member user:YOU --role roles/container.clusterViewer"),
        (404, "gcloud container clusters list --project p"),
    ],
)
async def test_what_google_refuses_is_reported_with_the_command_that_fixes_it(google, status, hint):
    google.status = status
    with pytest.raises(ApiError) as raised:
        await load()
    assert raised.value.status == status
    assert hint in raised.value.hint


async def test_a_disabled_api_is_reported_with_the_command_that_enables_it(google):
    google.status, google.reason = 403, "SERVICE_DISABLED"
    with pytest.raises(ApiError, match="The Kubernetes Engine API is disabled in project p") as raised:
        await load()
    assert "gcloud services enable container.googleapis.com --project p" in raised.value.hint


@pytest.mark.parametrize(
    ("refusal", "hint"),
    [
        ("Account disabled", "gcloud auth application-default login"),
        ("Token has been expired or revoked.", "gcloud auth application-default login"),
        (
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat "
            "and exp values in the JWT claim.",
            "timedatectl set-ntp true",
        ),
    ],
)
async def test_a_refused_token_is_reported_with_what_helps(google, refusal, hint):
    google.refuse = refusal
    with pytest.raises(ClusterError, match="Google refused to issue a token") as raised:
        await load()
    assert refusal.rstrip(".") in str(raised.value)
    assert hint in raised.value.hint


async def test_a_token_that_is_revoked_later_is_reported_when_it_is_renewed(google):
    google.describe = {"controlPlaneEndpointsConfig": DNS}
    found = await load()
    await found.credentials.authorization()
    google.refuse = "Token has been expired or revoked."
    await found.credentials.renew()
    with pytest.raises(ClusterError, match="expired or revoked"):
        await found.credentials.authorization()


DNS = {"dnsEndpointConfig": {"endpoint": "gke-1.us-east5.gke.goog", "allowExternalTraffic": True}}


async def test_workload_identity_federation_exchanges_the_pods_token(google, monkeypatch, tmp_path):
    google.describe = {"controlPlaneEndpointsConfig": DNS}
    subject = tmp_path / "subject"
    subject.write_text("of-the-pod")
    # For the number of a project in it, google-auth would look up that project's name.
    pool = "//iam.googleapis.com/locations/global/workloadIdentityPools/a/providers/b"
    account = tmp_path / "federated.json"
    account.write_text(
        json.dumps(
            {
                "type": "external_account",
                "audience": pool,
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                "token_url": f"{google.base}/sts",
                "credential_source": {"file": str(subject)},
            }
        )
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
    found = await load()
    assert (await found.credentials.authorization()).startswith("Bearer ya29.federated")


async def test_in_a_pod_the_metadata_server_gives_the_token(google, tmp_path):
    """In a process of its own: google-auth reads the metadata server's address when it is imported."""

    async def metadata(request):
        assert request.headers["Metadata-Flavor"] == "Google"
        path = request.path.removeprefix("/computeMetadata/v1/")
        token = {"access_token": "ya29.of-the-pod", "expires_in": 3600, "token_type": "Bearer"}
        answers = {"": "", "project/project-id": "p", "universe/universe-domain": "googleapis.com"}
        headers = {"Metadata-Flavor": "Google"}
        if path.endswith("/token"):
            return web.json_response(token, headers=headers)
        if path.startswith("instance/service-accounts/"):
            return web.json_response({"email": "pod@p.iam", "scopes": [], "aliases": []}, headers=headers)
        return web.Response(text=answers.get(path, ""), headers=headers)

    app = web.Application()
    app.router.add_get("/{path:.*}", metadata)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    google.describe = {"controlPlaneEndpointsConfig": DNS}
    here = f"127.0.0.1:{runner.addresses[0][1]}"
    environ = {name: value for name, value in os.environ.items() if name != "GOOGLE_APPLICATION_CREDENTIALS"}
    code = (
        "import asyncio; from pathways_jupyter.kube import auth; "
        "found = auth.load(cluster='tpus', project='p', region='us-east5'); "
        "print(found.server, asyncio.run(found.credentials.authorization()))"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        env={
            **environ,
            "HOME": str(tmp_path),
            "CLOUDSDK_CONFIG": str(tmp_path),
            "GCE_METADATA_HOST": here,
            "GCE_METADATA_IP": here,
        },
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    await runner.cleanup()
    assert out.decode() == "https://gke-1.us-east5.gke.goog Bearer ya29.of-the-pod\n"


async def test_a_proxy_in_the_environment_is_used_for_the_cluster_too(google, monkeypatch):
    google.describe = {"controlPlaneEndpointsConfig": DNS}
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert (await load()).proxy == "http://proxy.example:3128"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,.gke.goog")
    assert (await load()).proxy == ""


async def test_a_file_that_is_no_credential_is_reported(google, monkeypatch, tmp_path):
    (tmp_path / "broken.json").write_text("{}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "broken.json"))
    with pytest.raises(ClusterError, match=r"broken\.json, which cannot be used") as raised:
        await load()
    assert "gcloud auth application-default login" in raised.value.hint


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


def test_gclouds_impersonation_is_refused_and_not_ignored(monkeypatch):
    monkeypatch.setenv("CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT", "robot@p.iam.gserviceaccount.com")
    with pytest.raises(ConfigError, match="set to act as robot@"):
        auth.load(cluster="c", project="p", region="r")


def test_a_cluster_needs_its_project_and_region():
    with pytest.raises(ConfigError, match="needs its project and region"):
        auth.load(cluster="tpus")
    with pytest.raises(ConfigError, match="needs its project and region"):
        gke.find("tpus", "p", "")
