"""The data path in the cluster: never unencrypted over a network that the user did not choose."""

import os
import socket

import pytest

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.service import names, networkpolicy
from pathways_jupyter.session.supervisor import direct
from pathways_jupyter.session.supervisor.direct import DataPath


def pod(ip="10.4.0.7", labels=(("app", "notebook"),), **annotations):
    metadata = {"name": "notebook", "namespace": "team", "labels": dict(labels), "annotations": annotations}
    return {"metadata": metadata, "status": {"podIP": ip}}


@pytest.fixture
def google(tmp_path):
    path = tmp_path / "product_name"
    path.write_text("Google Compute Engine\n")
    return path


@pytest.fixture
def elsewhere(tmp_path):
    return tmp_path / "absent"


def test_outside_of_the_cluster_it_is_the_tunnel(google):
    assert direct.choose(ConnectConfig(), None, product_name=google) == DataPath()


def test_on_google_cloud_it_is_encrypted(google):
    assert direct.choose(ConnectConfig(), pod(), product_name=google) == DataPath("alts")


def test_elsewhere_it_is_the_tunnel_and_the_reason_is_given(elsewhere):
    route = direct.choose(ConnectConfig(), pod(), product_name=elsewhere)
    assert not route.is_direct
    assert "ALTS needs Google Cloud" in route.reason


def test_the_tunnel_can_be_asked_for(google):
    assert not direct.choose(ConnectConfig(tunnel=True), pod(), product_name=google).is_direct


def test_a_pod_that_no_policy_can_name_takes_the_tunnel(google):
    route = direct.choose(ConnectConfig(), pod(labels=()), product_name=google)
    assert not route.is_direct
    assert "no labels" in route.reason


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
