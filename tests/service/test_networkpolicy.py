import pytest
from permissions import DOCUMENT, documents

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import NETWORK_POLICIES
from pathways_jupyter.service import names, networkpolicy, proxy_job, service_jobset

OTHERS = {"podSelector": {"matchLabels": {"app": "database"}}}


def proxy_labels(user="jane"):
    """Return the labels of a proxy's pod."""
    spec = proxy_job.ProxySpec("a1b2", "service", service_jobset.address("service"), "r/proxy_server:1", {}, user=user)
    return proxy_job.job(spec)["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("user", ["jane", ""])
def test_the_policy_covers_every_proxy_and_lets_nothing_in(user):
    policy = networkpolicy.for_proxies("research")
    assert networkpolicy.covering([policy], proxy_labels(user)) == [policy]
    assert not networkpolicy.is_open(policy)
    assert policy["metadata"]["namespace"] == "research"


def test_the_policy_leaves_the_pods_of_the_service_and_of_others_alone():
    policy = networkpolicy.for_proxies()
    head = {names.JOBSET_NAME_LABEL: "service", names.REPLICATED_JOB_LABEL: names.HEAD_JOB}
    operator = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    for labels in (head, operator, {}, {"app": "database"}):
        assert networkpolicy.covering([policy], labels) == []


def test_a_resource_manager_is_open_to_its_proxies_its_workers_and_the_nodes_only():
    policy = networkpolicy.for_resource_manager("service", ["10.128.0.0/20"], "research")
    labels = {names.JOBSET_NAME_LABEL: "service", names.REPLICATED_JOB_LABEL: names.HEAD_JOB}
    assert networkpolicy.covering([policy], labels) == [policy]
    assert networkpolicy.covering([policy], labels | {names.JOBSET_NAME_LABEL: "other"}) == []
    (rule,) = policy["spec"]["ingress"]
    pods = [each["podSelector"]["matchLabels"] for each in rule["from"] if "podSelector" in each]
    assert any(wanted.items() <= proxy_labels().items() for wanted in pods)
    assert {"ipBlock": {"cidr": "10.128.0.0/20"}} in rule["from"]
    assert not networkpolicy.is_open(policy)


@pytest.mark.parametrize(
    ("spec", "covers"),
    [
        ({"podSelector": {}}, True),
        ({"podSelector": {}, "policyTypes": ["Egress"]}, False),
        ({"podSelector": {"matchLabels": {"app": "pathways-proxy"}}}, True),
        ({"podSelector": {"matchLabels": {"app": "other"}}}, False),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["pathways-proxy"]}]}}, True),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}}, True),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
        ({"podSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}}, True),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Unknown"}]}}, False),
    ],
)
def test_policies_of_others_count_where_they_select_the_proxies(spec, covers):
    assert bool(networkpolicy.covering([{"spec": spec}], proxy_labels())) is covers


@pytest.mark.parametrize(
    ("ingress", "is_open"),
    [
        (None, False),
        ([], False),
        ([{}], True),
        ([{"ports": [{"port": 1}]}], True),
        ([{"from": []}], True),
        ([{"from": [{"namespaceSelector": {}}]}], True),
        ([{"from": [{"namespaceSelector": {}, "podSelector": {}}]}], True),
        ([{"from": [{"namespaceSelector": {"matchLabels": {}}, "podSelector": {"matchExpressions": []}}]}], True),
        ([{"from": [{"namespaceSelector": {}, **OTHERS}]}], False),
        ([{"from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": {}}]}], False),
        ([{"from": [{"podSelector": {}}]}], False),
        ([{"from": [OTHERS]}], False),
        ([{"from": [OTHERS]}, {}], True),
        ([{"from": [OTHERS, {"ipBlock": {"cidr": "0.0.0.0/0"}}]}], True),
        ([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}], False),
    ],
)
def test_a_policy_that_lets_every_pod_in_is_open(ingress, is_open):
    assert networkpolicy.is_open({"spec": {"ingress": ingress}}) is is_open


def test_the_documented_policy_is_the_one_that_is_printed():
    assert networkpolicy.for_proxies() in documents(), DOCUMENT


async def test_an_api_server_takes_the_policies_as_they_are(client):
    for policy in (networkpolicy.for_proxies(), networkpolicy.for_resource_manager("s", ["10.0.0.0/8"])):
        made = await objects.create(client, NETWORK_POLICIES, policy, namespace="default")
        assert made["spec"] == policy["spec"]
