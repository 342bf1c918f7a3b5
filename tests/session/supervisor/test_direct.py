"""The data path in the cluster: never unencrypted over a network that the user did not choose."""

import os
import socket

import pytest

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.service import names, networkpolicy
from pathways_jupyter.session.supervisor import direct


def pod(ip="10.4.0.7", labels=(("app", "notebook"),), **annotations):
    metadata = {"name": "notebook", "namespace": "team", "labels": dict(labels), "annotations": annotations}
    return {"metadata": metadata, "status": {"podIP": ip}}


@pytest.mark.parametrize(
    ("config", "own", "on_google", "credentials", "reason"),
    [
        (ConnectConfig(), None, True, "", ""),
        (ConnectConfig(), pod(), True, "alts", ""),
        (ConnectConfig(), pod(), False, "", "ALTS needs Google Cloud"),
        (ConnectConfig(tunnel=True), pod(), True, "", ""),
        (ConnectConfig(), pod(labels=()), True, "", "no labels"),
    ],
    ids=["outside of the cluster", "Google Cloud", "elsewhere", "a tunnel is asked for", "no policy can name the pod"],
)
def test_it_is_encrypted_and_direct_or_the_tunnel(config, own, on_google, credentials, reason, tmp_path):
    product = tmp_path / "product_name"
    if on_google:
        product.write_text("Google Compute Engine\n")
    path = direct.choose(config, own, product_name=product)
    assert path.credentials == credentials
    assert path.is_direct == bool(credentials)
    assert reason in path.reason
    assert bool(path.reason) == bool(reason)


@pytest.mark.parametrize(("ip", "target"), [("10.4.0.7", "10.4.0.7:29100"), ("fd00::7", "[fd00::7]:29100")])
def test_the_address_is_the_pods(ip, target):
    assert direct.address(pod(ip), 29100) == target


def test_sockets_that_others_can_reach_are_refused(tmp_path):
    proxy = pod(**{names.SOCKETS_ANNOTATION: str(tmp_path)})
    os.chmod(tmp_path, 0o755)
    with pytest.raises(SessionError, match="not private"):
        direct.address(proxy, 29100)
    os.chmod(tmp_path, 0o700)
    assert direct.address(proxy, 29100) == f"unix:{tmp_path}/29100"


async def test_a_port_that_stays_closed_is_reported():
    # Bound and not listening: refuses, and nothing else can take it.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{closed.getsockname()[1]}"
        refusals = []

        async def refused():
            refusals.append(where)

        with pytest.raises(ConnectionRefusedError):
            await direct.until_open(where, seconds=0.1, on_refused=refused)
        assert refusals


def test_a_session_of_another_namespace_lets_in_the_notebooks_pod_alone():
    labels = {names.SESSION_LABEL: "abc"}
    metadata = {"name": "proxy-abc", "namespace": "pathways", "uid": "u", "labels": labels}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    policy = networkpolicy.for_session(job, pod(), 29100)
    (rule,) = policy["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 29100}]
    assert rule["from"] == [
        {
            "podSelector": {"matchLabels": {"app": "notebook"}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team"}},
        }
    ]
    assert networkpolicy.covering([policy], labels)
    assert not networkpolicy.is_open(policy)
    (owner,) = policy["metadata"]["ownerReferences"]
    assert owner["uid"] == "u"
