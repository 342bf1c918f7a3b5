import pytest

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service import deployment, discovery, names, service_jobset


def spec(instance="tpuv6e:2x2", slices=2, **options):
    return service_jobset.ServiceSpec(
        tpu.parse_instance_type(instance), slices, "repo/pathways/server:jax-0.10.2", **options
    )


def replicated(manifest, name):
    return next(job for job in manifest["spec"]["replicatedJobs"] if job["name"] == name)


def pod_of(job):
    return job["template"]["spec"]["template"]["spec"]


def test_the_largest_slices_may_restart_as_often_as_kubernetes_can_count():
    workers = replicated(service_jobset.manifest(spec("tpu7x:16x24x24")), names.WORKER_JOB)
    assert workers["template"]["spec"]["completions"] == 2304
    assert workers["template"]["spec"]["backoffLimit"] == 2**31 - 1


@pytest.mark.parametrize("name", ["", "Upper", "-dash", "dash-", "a" * 23, "under_score", "1digit"])
def test_a_name_that_pods_cannot_carry_is_refused(name):
    with pytest.raises(ConfigError, match="name of a service") as raised:
        service_jobset.manifest(spec(name=name))
    assert raised.value.hint


def test_the_heads_name_of_the_longest_service_fits_into_a_label():
    assert (
        len(service_jobset.head_host("a" * service_jobset.MAX_NAME))
        <= 63
        < len(service_jobset.head_host("a" * (service_jobset.MAX_NAME + 1)))
    )


def test_a_service_without_slices_is_refused():
    with pytest.raises(ConfigError, match="number of slices"):
        service_jobset.manifest(spec(slices=0))


def test_two_manifests_share_no_mutable_part():
    one, other = service_jobset.manifest(spec()), service_jobset.manifest(spec())
    replicated(one, names.WORKER_JOB)["template"]["spec"]["completions"] = 99
    assert replicated(other, names.WORKER_JOB)["template"]["spec"]["completions"] == 1


@pytest.mark.parametrize(("given", "seconds"), [({}, 0.0), ({"suspend_after": "4h"}, 14400.0)])
def test_when_its_sessions_are_suspended_is_written_and_read(given, seconds):
    planned = deployment.plan({"name": "team", "tpu": "tpuv6e:2x2", "slices": 1, "local": True, **given}, jax="0.10.2")
    (found,) = discovery.of_jobsets([service_jobset.manifest(planned)])
    assert found.suspend_after == seconds


@pytest.mark.parametrize("written", ["-1", "soon", "inf", "1e99", ""])
def test_a_limit_that_cannot_be_read_suspends_nothing(written):
    manifest = service_jobset.manifest(spec(annotations={names.SUSPEND_AFTER_ANNOTATION: written}))
    (found,) = discovery.of_jobsets([manifest])
    assert found.suspend_after == 0.0


def test_account_selectors_tolerations_and_annotations_are_those_of_the_parts_pods():
    given = {
        "name": "mine",
        "tpu": "tpuv6e:2x2",
        "local": True,
        "service_account": "pathways",
        "worker_node_selector": ["cloud.google.com/gke-spot=true"],
        "worker_tolerations": ["cloud.google.com/gke-spot=true:NoSchedule"],
        "worker_annotations": ["example.com/team=a b=c"],
        "head_node_selector": ["cloud.google.com/compute-class=heads"],
        "head_tolerations": ["dedicated"],
        "head_annotations": ["example.com/team=heads"],
    }
    manifest = service_jobset.manifest(deployment.plan(given, jax="0.10.2"))
    head, workers = replicated(manifest, names.HEAD_JOB), replicated(manifest, names.WORKER_JOB)
    for job in (head, workers):
        assert pod_of(job)["serviceAccountName"] == "pathways"
    assert pod_of(workers)["nodeSelector"] == {
        names.ACCELERATOR_LABEL: "tpu-v6e-slice",
        names.TOPOLOGY_LABEL: "2x2",
        "cloud.google.com/gke-spot": "true",
    }
    spot = {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    assert pod_of(workers)["tolerations"] == [spot]
    about = workers["template"]["spec"]["template"]["metadata"]["annotations"]
    assert about == {"example.com/team": "a b=c", service_jobset.EXCLUSIVE: names.NODEPOOL_LABEL}
    # The head's own labels take the place of the node pool that it has otherwise.
    assert pod_of(head)["nodeSelector"] == {"cloud.google.com/compute-class": "heads"}
    assert pod_of(head)["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert head["template"]["spec"]["template"]["metadata"]["annotations"] == {"example.com/team": "heads"}
    plain = service_jobset.manifest(deployment.plan({"name": "mine", "tpu": "tpuv6e:2x2", "local": True}, jax="0.10.2"))
    assert not {"serviceAccountName", "tolerations"} & {*pod_of(replicated(plain, names.WORKER_JOB))}
    assert pod_of(replicated(plain, names.HEAD_JOB))["nodeSelector"] == {names.NODEPOOL_LABEL: "cpu-np"}


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("service_account", "Not-One", "--service-account cannot be 'Not-One'"),
        ("worker_node_selector", ["spot"], "--worker-node-selector cannot be 'spot': it is not KEY=VALUE"),
        ("worker_node_selector", [f"{names.TOPOLOGY_LABEL}=4x4"], "that follows from the type of slice"),
        ("worker_tolerations", ["a=b:Never"], "--worker-tolerations cannot be 'a=b:Never'"),
        ("worker_annotations", ["-x=1"], "--worker-annotations cannot be '-x=1'"),
        ("worker_annotations", [f"{service_jobset.EXCLUSIVE}=zone"], "the service sets that itself"),
        ("head_node_selector", ["x"], "--head-node-selector"),
        ("head_tolerations", [":NoSchedule"], "--head-tolerations"),
        ("head_annotations", ["x"], "--head-annotations"),
    ],
)
def test_a_placement_that_cannot_be_is_refused_by_its_option(option, value, words):
    with pytest.raises(ConfigError, match=words) as raised:
        deployment.plan({"name": "mine", "tpu": "tpuv6e:2x2", "local": True, option: value}, jax="0.10.2")
    assert raised.value.hint


def test_a_node_pool_of_the_head_is_given_once():
    given = {"name": "mine", "tpu": "tpuv6e:2x2", "local": True, "head_pool": "a"}
    with pytest.raises(ConfigError, match="given twice"):
        deployment.plan({**given, "head_node_selector": [f"{names.NODEPOOL_LABEL}=b"]}, jax="0.10.2")
    both = deployment.plan({**given, "head_node_selector": ["disk=ssd"]}, jax="0.10.2")
    assert both.head.node_selector == {names.NODEPOOL_LABEL: "a", "disk": "ssd"}
