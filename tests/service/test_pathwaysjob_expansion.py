import copy
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pathways_jobs import headless, training

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.local.apiserver.custom_rules import rule_causes
from pathways_jupyter.service import names
from pathways_jupyter.service.pathwaysjob import definition, expansion

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def parts(jobset):
    """The replicated jobs of a JobSet: head, workers, and their pods' specs."""
    head, workers = jobset["spec"]["replicatedJobs"]
    return head, workers, pod_of(head), pod_of(workers)


def pod_of(replicated):
    return replicated["template"]["spec"]["template"]["spec"]


def env(container):
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_a_colocated_head_runs_on_the_nodes_of_its_own_workers_only():
    job = training()
    job["spec"]["controller"]["deploymentMode"] = "colocate_head_with_workers"
    job["spec"]["controller"]["template"]["spec"]["nodeSelector"] = {"pool": "cpu"}
    job["spec"]["workers"][0]["nodeSelector"] = {"reservation": "r"}
    head, _, pod, worker_pod = parts(expansion.expand(job))
    assert pod["nodeSelector"] == worker_pod["nodeSelector"]
    assert pod["nodeSelector"]["reservation"] == "r"
    assert {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    for kind, operator in (("podAffinity", "In"), ("podAntiAffinity", "NotIn")):
        (term,) = pod["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "cloud.google.com/gke-nodepool"
        own = term["labelSelector"]["matchExpressions"][0]
        assert own == {"key": "jobset.sigs.k8s.io/jobset-name", "operator": operator, "values": ["train"]}
    assert EXCLUSIVE not in head["template"]["metadata"]["annotations"]


def test_what_the_user_sets_on_a_pod_is_kept():
    job = training()
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    template = job["spec"]["controller"]["template"]
    template["metadata"] = {"labels": {"app": "x"}, "annotations": {"note": "y"}}
    template["spec"]["initContainers"] = [{"name": "data", "image": "busybox"}]
    template["spec"]["restartPolicy"] = "OnFailure"
    template["spec"]["containers"][0]["env"] = [
        {"name": "STEPS", "value": "5"}, {"name": "JAX_PLATFORMS", "value": "proxy,cpu"},
    ]  # fmt: skip
    template["spec"]["containers"].append({"name": "logger", "image": "busybox"})
    before = copy.deepcopy(job)
    jobset = expansion.expand(job)
    head, _, pod, _ = parts(jobset)
    assert job == before, "the job itself is not altered"
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    metadata = head["template"]["spec"]["template"]["metadata"]
    assert metadata["labels"] == {"app": "x"}
    assert metadata["annotations"]["note"] == "y"
    assert [each["name"] for each in pod["initContainers"]] == ["data", "pathways-rm", "pathways-proxy"]
    assert pod["restartPolicy"] == "OnFailure"
    main, logger = pod["containers"]
    assert env(main)["STEPS"] == "5"
    # A head written by hand may be that of another job.
    assert [each["value"] for each in main["env"] if each["name"] == "JAX_PLATFORMS"] == ["proxy"]
    assert "env" not in logger


def test_custom_components_change_image_flags_and_environment():
    kinds = {definition.SERVER: "pathways-rm", definition.PROXY: "pathways-proxy", definition.WORKER: "pathways-worker"}
    components = [
        {
            "componentType": kind,
            "image": f"registry/{kind}:7",
            "customFlags": [f"--flag_of={kind}"],
            "customEnv": [{"name": "TPU_MIN_LOG_LEVEL", "value": "3"}],
        }
        for kind in kinds
    ]
    job = headless(customComponents=components)
    job["spec"]["controller"]["enableMetricsCollection"] = True
    _, _, head_pod, worker_pod = parts(expansion.expand(job))
    found = {each["name"]: each for each in (*head_pod["containers"], *worker_pod["containers"])}
    for kind, name in kinds.items():
        assert found[name]["image"] == f"registry/{kind}:7"
        assert found[name]["args"][-2:] == ["--enable_metrics_collection=true", f"--flag_of={kind}"]
        assert [each["value"] for each in found[name]["env"] if each["name"] == "TPU_MIN_LOG_LEVEL"] == ["3"]


def test_the_workers_take_grace_priority_and_selectors():
    job = headless(pathwaysVersion="20260101")
    job["spec"]["workers"][0] |= {
        "terminationGracePeriodSeconds": 0,
        "priorityClassName": "high",
        "nodeSelector": {"zone": "a", names.TOPOLOGY_LABEL: "16x16"},
    }
    _, _, head_pod, pod = parts(expansion.expand(job))
    assert (pod["terminationGracePeriodSeconds"], pod["priorityClassName"]) == (0, "high")
    assert pod["nodeSelector"]["zone"] == "a"
    assert pod["nodeSelector"][names.TOPOLOGY_LABEL] == "2x2", "other nodes cannot run the slice"
    assert "priorityClassName" not in head_pod
    assert pod["containers"][0]["image"].endswith("/server:20260101")


def test_annotations_of_the_job_are_on_the_jobset_the_head_and_its_pods():
    job = training()
    job["metadata"]["annotations"] = {"note": "job", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    job["spec"]["controller"]["template"]["metadata"] = {"annotations": {"note": "template", "mine": "x"}}
    jobset = expansion.expand(job)
    head, workers, *_ = parts(jobset)
    assert jobset["metadata"]["annotations"] == {"note": "job"}
    assert head["template"]["metadata"]["annotations"] == {"note": "job"}
    pod = head["template"]["spec"]["template"]["metadata"]["annotations"]
    assert pod == {"note": "job", "mine": "x"}
    assert workers["template"]["metadata"]["annotations"] == {EXCLUSIVE: names.NODEPOOL_LABEL}


def test_a_head_on_its_nodes_network_has_the_node_to_itself():
    job = training()
    job["spec"]["controller"]["template"]["spec"]["hostNetwork"] = True
    head, *_ = parts(expansion.expand(job))
    for part in (head["template"], head["template"]["spec"]["template"]):
        assert part["metadata"]["annotations"] == {EXCLUSIVE: "kubernetes.io/hostname"}


def test_a_job_can_start_suspended():
    job = training()
    job["metadata"]["annotations"] = {definition.START_SUSPENDED_ANNOTATION: "true"}
    assert expansion.expand(job)["spec"]["suspend"] is True
    assert "suspend" not in expansion.expand(training())["spec"]


@pytest.mark.parametrize("spec", [{"workers": []}, {"workers": [{"type": "ct6e-standard-4t"}]}, {"controller": None}])
def test_an_incomplete_job_is_an_error_in_words(spec):
    with pytest.raises(ConfigError):
        expansion.expand(headless(**spec))


TYPES = [(machine, topology) for machine in tpu.MACHINES for topology in machine.topologies]
small = st.integers(min_value=0, max_value=9)


@st.composite
def jobs(draw):
    """A valid PathwaysJob."""
    machine, topology = draw(st.sampled_from(TYPES))
    slices = draw(st.integers(min_value=1, max_value=32))
    workers = {"type": machine.name, "topology": topology, "numSlices": slices}
    if draw(st.booleans()):
        workers["maxSliceRestarts"] = draw(small)
    if draw(st.booleans()):
        workers["terminationGracePeriodSeconds"] = draw(small)
    controller = {"deploymentMode": draw(st.sampled_from(definition.MODES))}
    if draw(st.booleans()):
        controller["elasticSlices"] = draw(st.integers(min_value=0, max_value=slices))
    if draw(st.booleans()):
        main = {"name": "main", "image": "x:1"}
        controller["template"] = {"spec": {"containers": [main]}}
    components = [
        {
            "componentType": kind,
            "image": f"r/{kind}:1",
            "customFlags": draw(st.lists(st.sampled_from(["--a=1", "--b"]))),
        }
        for kind in draw(st.lists(st.sampled_from(definition.COMPONENTS), unique=True))
    ]
    made = headless(maxRestarts=draw(small), customComponents=components, controller=controller)
    made["spec"]["workers"] = [workers]
    return made


@settings(max_examples=200)
@given(jobs())
def test_every_valid_job_expands_by_the_same_rules(job):
    """The rules, computed here in another way, from the job alone."""
    (given_workers,), controller = job["spec"]["workers"], job["spec"]["controller"]
    jobset = expansion.expand(job)
    head, workers, head_pod, worker_pod = parts(jobset)
    machine = next(each for each in tpu.MACHINES if each.name == given_workers["type"])
    chips = math.prod(map(int, given_workers["topology"].split("x")))
    hosts = max(1, chips // machine.chips)
    job_spec = workers["template"]["spec"]
    assert workers["replicas"] == given_workers["numSlices"]
    assert job_spec["completions"] == job_spec["parallelism"] == hosts
    restarts = given_workers.get("maxSliceRestarts", 1) if controller.get("elasticSlices") else 4
    assert job_spec["backoffLimit"] == hosts * restarts
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == job["spec"]["maxRestarts"]
    assert worker_pod.get("terminationGracePeriodSeconds") == given_workers.get("terminationGracePeriodSeconds")
    user = "template" in controller
    assert ("successPolicy" in jobset["spec"]) == user
    programs = head_pod["initContainers"] if user else head_pod["containers"]
    assert [each["name"] for each in programs] == ["pathways-rm", "pathways-proxy"]
    assert all(("restartPolicy" in each) == user for each in programs)
    assert ("affinity" in head_pod) == (controller["deploymentMode"] == "colocate_head_with_workers")
    components = {each["componentType"]: each for each in job["spec"]["customComponents"]}
    colocated = "colocated_python_sidecar" in components
    assert ("initContainers" in worker_pod) == colocated
    assert ("--sidecar_name=external" in programs[1]["args"]) == colocated
    for kind, container in (("pathways_server", programs[0]), ("proxy_server", programs[1]),
                            ("worker", worker_pod["containers"][0])):  # fmt: skip
        if kind in components:
            assert container["image"] == f"r/{kind}:1"
            flags = components[kind]["customFlags"]
            args = [each for each in container["args"] if not each.startswith("--num_elastic_slices=")]
            assert args[len(args) - len(flags) :] == flags
        else:
            assert container["image"].endswith(":latest")
    assert head["template"]["spec"]["backoffLimit"] == 0


BUILDER_TYPES = ["ct6e-standard-4t", "ct5p-hightpu-4t", "ct5lp-hightpu-4t", "ct4p-hightpu-4t"]


@settings(max_examples=40)
@given(st.sampled_from(BUILDER_TYPES), st.integers(1, 9), small, small, st.integers(0, 3))
def test_a_headless_job_is_what_the_peers_builder_makes(machine, slices, restarts, slice_restarts, elastic):
    """The peer takes the number of restarts as it is, so the comparison is on elastic jobs."""
    from pathwaysutils.experimental.gke.jobset import PathwaysJobSet

    elastic = min(elastic, slices) or 1
    topology = next(each.topologies[1] for each in tpu.MACHINES if each.name == machine)
    job = headless("same", slices=slices, machine=machine, topology=topology, maxRestarts=restarts)
    job["spec"]["controller"]["elasticSlices"] = elastic
    job["spec"]["workers"][0]["maxSliceRestarts"] = slice_restarts
    ours = expansion.expand(job)
    theirs = PathwaysJobSet(
        "same",
        "default",
        "gs://bucket/tmp",
        machine,
        topology,
        slices,
        max_restarts=restarts,
        max_slice_restarts=slice_restarts,
        elastic_slices=elastic,
    ).to_dict()
    assert theirs["spec"]["failurePolicy"].get("maxRestarts", 0) == ours["spec"]["failurePolicy"]["maxRestarts"]
    for key in ("coordinator", "startupPolicy", "network"):
        if key in theirs["spec"]:
            assert theirs["spec"][key] == ours["spec"][key]
    for mine, other in zip(ours["spec"]["replicatedJobs"], theirs["spec"]["replicatedJobs"], strict=True):
        # Of the peer's names for the workers, PathwaysJob's own is the one without "pathways".
        assert other["name"] in {mine["name"], f"pathways-{mine['name']}"}
        assert mine["replicas"] == other["replicas"]
        spec, peer = mine["template"]["spec"], other["template"]["spec"]
        for key in ("backoffLimit", "completions", "parallelism", "completionMode"):
            assert spec[key] == peer[key]
        pod, peer_pod = pod_of(mine), pod_of(other)
        assert pod["restartPolicy"] == peer_pod["restartPolicy"]
        if mine["name"] == "worker":
            assert pod["nodeSelector"] == peer_pod["nodeSelector"]
        for container, peer_container in zip(pod["containers"], peer_pod["containers"], strict=True):
            for key in ("name", "image", "imagePullPolicy", "ports", "resources"):
                assert container[key] == peer_container[key], key
            assert sorted(container["args"]) == sorted(peer_container["args"])
            assert {each["name"] for each in peer_container["env"]} <= {each["name"] for each in container["env"]}


WORKER = definition.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
    "properties"
]["workers"]["items"]
MACHINES = {machine.name: machine for machine in tpu.MACHINES}
axis = st.integers(0, 130).map(str)


@settings(max_examples=300)
@given(st.sampled_from(sorted(MACHINES)), st.lists(axis, min_size=1, max_size=4).map("x".join))
def test_the_definition_and_the_catalogue_agree_on_topologies(machine, topology):
    # The catalogue also has a limit of chips; a rule of the definition would be long.
    assume(not MACHINES[machine].cubes or math.prod(map(int, topology.split("x"))) <= 64 * MACHINES[machine].cubes)
    refused = bool(list(rule_causes(WORKER, {"type": machine, "topology": topology, "numSlices": 1})))
    try:
        tpu.parse_instance_type(f"{machine}:{topology}")
        valid = True
    except ConfigError:
        valid = False
    assert refused != valid
