import json_server
import kubeconfigs
import pytest

from pathways_jupyter.kube import auth
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.kube.credentials import Fixed
from pathways_jupyter.kube.library import Api, Refused


@pytest.mark.parametrize("authorization", ["Bearer secret", ""], ids=["token", "client certificate"])
async def test_a_request_has_the_credentials_of_its_cluster_and_no_empty_ones(authorization):
    credentials = Fixed(authorization, hint="none")
    api = Api(Cluster("c", "http://127.0.0.1:1", "default", credentials))
    method, url, headers, *_ = await api.prepare("GET", "/api/v1/pods", {"labelSelector": "a in (b, c)"})
    await api.close()
    assert (method, url) == ("GET", "http://127.0.0.1:1/api/v1/pods?labelSelector=a%20in%20%28b%2C%20c%29")
    assert headers.get("Authorization", "") == authorization
    assert ("Authorization" in headers) == bool(authorization)


async def test_an_identity_with_several_groups_goes_with_requests_and_websockets(tmp_path):
    received = []

    def note(request, body):
        received.append([(name, value) for name, value in request.headers.items() if name.startswith("Impersonate")])
        return 200, {}

    user = {
        "token": "t",
        "as": "jane",
        "as-groups": ["dev", "ops"],
        "as-uid": "7",
        "as-user-extra": {"example.com/scopes": ["a", "b"]},
    }
    with json_server.serving(note) as url:
        cluster = {"server": url.replace("http", "HTTP", 1)}
        api = Api(auth.load(kubeconfigs.write(tmp_path / "config", cluster, user)))
        try:
            await api.send(await api.prepare("GET", "/api"))
            with pytest.raises(Refused):
                await api.connect(await api.prepare("GET", "/api"), ["v4.channel.k8s.io"])
        finally:
            await api.close()
    extra = "Impersonate-Extra-example.com%2Fscopes"
    groups = [("Impersonate-Group", "dev"), ("Impersonate-Group", "ops")]
    expected = [("Impersonate-User", "jane"), *groups, ("Impersonate-Uid", "7"), (extra, "a"), (extra, "b")]
    assert received == [expected, expected]
