"""Manifests of `service deploy`, compared with those of pathwaysutils' own builder for the same request."""

import pytest
from pathwaysutils.experimental.gke.jobset import MACHINE_TYPE_TO_TPU_VERSION_MAP as KNOWN_THERE

from pathways_jupyter.base import tpu
from pathways_jupyter.service import names, service_jobset

BUCKET = "gs://team/scratch"
REQUESTS = [
    (f"{machine.version}:{topology}", machine.name, topology)
    for machine in tpu.MACHINES
    for topology in machine.topologies
    # The builder asks for four chips on every host, also for a slice of one chip, which no node with one chip has.
    if machine.name in KNOWN_THERE and topology != "1x1"
]


def ours(instance: str, **options) -> dict:
    spec = service_jobset.ServiceSpec(
        tpu.parse_instance_type(instance),
        3,
        f"{names.IMAGE_REPOSITORY}/server:jax-0.10.2",
        name="team",
        namespace="research",
        gcs_scratch_location=BUCKET,
        head=service_jobset.PodPlacement({names.NODEPOOL_LABEL: "cpu-np"}),
        **options,
    )
    return service_jobset.manifest(spec)


def theirs(machine: str, topology: str, *, sidecar: str = "", **options) -> dict:
    # Every process of a test run imports this file, and this takes seconds.
    from pathwaysutils.experimental.gke.jobset import PathwaysJobSet

    built = PathwaysJobSet(
        name="team",
        namespace="research",
        pathways_dir=BUCKET,
        tpu_type=machine,
        topology=topology,
        num_slices=3,
        max_restarts=30,
        pathways_version="jax-0.10.2",
        shared_pathways_service=True,
        **options,
    )
    if sidecar:
        built.add_colocated_python(image=sidecar, shm_mount_path="/tmp/sidecar_dir")
    return built.to_dict()


def comparable(manifest: dict) -> dict:
    """A manifest without what may differ: order, names that both sides find, and labels."""
    spec = dict(manifest["spec"])
    head, workers = spec.pop("replicatedJobs")
    assert workers["name"] in names.WORKER_JOBS
    return {
        "api": (manifest["apiVersion"], manifest["kind"]),
        "metadata": {key: manifest["metadata"][key] for key in ("name", "namespace")},
        "spec": spec,
        # Without the head's annotation there, which keeps every other head off its node.
        "head": (head["name"], *job(head)),
        "workers": (job(workers), annotations(workers)),
    }


def job(replicated: dict) -> tuple:
    """A replicated job without annotations."""
    spec = dict(replicated["template"]["spec"])
    template = spec.pop("template")
    pod = dict(template["spec"])
    parts = [container(each) for kind in ("initContainers", "containers") for each in pod.pop(kind, ())]
    pod["volumes"] = by_name(pod.get("volumes", ()))
    return replicated["replicas"], spec, pod, parts


def annotations(replicated: dict) -> dict:
    """Those of its pods, where both sides have them."""
    return replicated["template"]["spec"]["template"]["metadata"]["annotations"]


def container(given: dict) -> dict:
    return {
        **given,
        "args": sorted(given.get("args", ())),
        "env": by_name(given.get("env", ())),
        "volumeMounts": by_name(given.get("volumeMounts", ())),
        "ports": sorted(each["containerPort"] for each in given.get("ports", ())),
    }


def by_name(given) -> dict:
    return {each["name"]: each for each in given}


@pytest.mark.parametrize(("instance", "machine", "topology"), REQUESTS, ids=lambda value: str(value))
def test_a_service_of_every_machine_and_topology_is_what_the_builder_makes(instance, machine, topology):
    assert comparable(ours(instance)) == comparable(theirs(machine, topology))


def test_so_is_one_with_a_sidecar_and_bounded_restarts():
    sidecar = f"{names.SIDECAR_REPOSITORY}/sidecar:20260423-python_3.12-jax_0.10.0"
    made = ours("tpuv6e:4x4", sidecar_image=sidecar, max_slice_restarts=7)
    assert comparable(made) == comparable(theirs("ct6e-standard-4t", "4x4", sidecar=sidecar, max_slice_restarts=7))


def test_a_slice_of_one_chip_asks_for_one_chip():
    worker = ours("tpuv6e:1x1")["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["containers"][0]
    assert worker["resources"]["limits"] == {names.TPU_RESOURCE: "1"}
