import pytest

from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.kube.credentials import Fixed
from pathways_jupyter.kube.library import Api


@pytest.mark.parametrize("authorization", ["Bearer secret", ""], ids=["token", "client certificate"])
async def test_a_request_has_the_credentials_of_its_cluster_and_no_empty_ones(authorization):
    credentials = Fixed(authorization, hint="none")
    api = Api(Cluster("c", "http://127.0.0.1:1", "default", credentials, headers={"Impersonate-User": "jane"}))
    method, url, headers, *_ = await api.prepare("GET", "/api/v1/pods", {"labelSelector": "a in (b, c)"})
    await api.close()
    assert (method, url) == ("GET", "http://127.0.0.1:1/api/v1/pods?labelSelector=a%20in%20%28b%2C%20c%29")
    assert headers["Impersonate-User"] == "jane"
    assert headers.get("Authorization", "") == authorization
    assert ("Authorization" in headers) == bool(authorization)
