"""The API server refuses what the definition forbids, with the path of the field."""

import copy
import json
import re

import pytest
import pytest_asyncio
from pathways_jobs import headless, training
from quiet_cluster import QuietCluster
from upstream_jobs import COLOCATED_PYTHON, ELASTIC_TRAINING

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import PATHWAYS_JOBS, Resource
from pathways_jupyter.service.pathwaysjob import definition

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory):
    async with QuietCluster(tmp_path_factory.mktemp("rules")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def client(cluster):
    async with cluster.client() as client:
        if await objects.find(client, CRDS, "pathwaysjobs.pathways-job.pathways.domain") is None:
            await objects.create(client, CRDS, definition.definition())
        yield client


pytestmark = pytest.mark.asyncio(loop_scope="module")


def changed(job, path, value):
    """A copy of a job in which the field at `path` has another value; None removes it."""
    made = copy.deepcopy(job)
    *way, last = path.split(".")
    place = made
    for step in way:
        place = place[int(step)] if step.isdecimal() else place.setdefault(step, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return made


@pytest.mark.parametrize(
    "manifest",
    [ELASTIC_TRAINING, COLOCATED_PYTHON, training(), headless()],
    ids=lambda each: each["metadata"]["name"],
)
async def test_the_usual_jobs_are_accepted_as_they_are(client, manifest):
    stored = await objects.create(client, PATHWAYS_JOBS, manifest, namespace="default")
    controller, (workers,) = manifest["spec"]["controller"], manifest["spec"]["workers"]
    assert stored["spec"]["controller"]["mainContainerName"] == controller.get("mainContainerName", "main")
    assert stored["spec"]["workers"][0]["maxSliceRestarts"] == workers.get("maxSliceRestarts", 1)
    if template := controller.get("template"):
        assert stored["spec"]["controller"]["template"] == template, "nothing of the user's pod is pruned"
    await objects.delete(client, PATHWAYS_JOBS, manifest["metadata"]["name"], namespace="default")


SIDECAR = {"componentType": "colocated_python_sidecar"}
TWO = [{"componentType": "worker", "image": "a"}, {"componentType": "worker", "image": "b"}]
MAIN = "spec.controller.template.spec.containers[0]"
INVALID = {
    "spec.workers": [
        ("spec.workers", None),
        ("spec.workers", []),
        ("spec.workers", [headless()["spec"]["workers"][0]] * 2),
    ],
    "spec.workers[0].type": [("spec.workers.0.type", "ct9-standard-4t"), ("spec.workers.0.type", None)],
    "spec.workers[0].topology": [("spec.workers.0.topology", "3x3"), ("spec.workers.0.topology", None)],
    "spec.workers[0].numSlices": [("spec.workers.0.numSlices", 0), ("spec.workers.0.numSlices", "two")],
    "spec.workers[0].maxSliceRestarts": [("spec.workers.0.maxSliceRestarts", -1)],
    "spec.workers[0].terminationGracePeriodSeconds": [("spec.workers.0.terminationGracePeriodSeconds", -1)],
    "spec.workers[0].nodeSelector": [("spec.workers.0.nodeSelector", {f"k{i}": "v" for i in range(33)})],
    "spec.maxRestarts": [("spec.maxRestarts", -1)],
    "spec.pathwaysDir": [("spec.pathwaysDir", "/tmp/scratch")],
    "spec.controller": [("spec.controller", None)],
    "spec.controller.deploymentMode": [
        ("spec.controller.deploymentMode", "beside"),
        ("spec.controller.deploymentMode", None),
    ],
    "spec.controller.elasticSlices": [("spec.controller.elasticSlices", 2), ("spec.controller.elasticSlices", -1)],
    "spec.controller.mainContainerName": [("spec.controller.mainContainerName", "trainer")],
    "spec.controller.template.spec.containers": [("spec.controller.template.spec.containers", [])],
    "spec.controller.template.spec.containers[0].name": [
        ("spec.controller.template.spec.containers", [{"name": "pathways-rm"}, {"name": "main"}])
    ],
    "spec.controller.template.spec.restartPolicy": [("spec.controller.template.spec.restartPolicy", "Always")],
    f"{MAIN}.env[0].value": [("spec.controller.template.spec.containers.0.env", [{"name": "A", "value": 8}])],
    f"{MAIN}.resources.limits.memory": [
        ("spec.controller.template.spec.containers.0.resources", {"limits": {"memory": "100GB"}})
    ],
    "spec.controller.template.spec.hostNetwork": [("spec.controller.template.spec.hostNetwork", "true")],
    "spec.customComponents": [("spec.customComponents", [SIDECAR] * 5)],
    "spec.customComponents[1]": [("spec.customComponents", TWO)],
    "spec.customComponents[0].componentType": [("spec.customComponents", [{"componentType": "brain"}])],
    "spec.customComponents[0].image": [("spec.customComponents", [SIDECAR])],
    "<root>": [("metadata.name", "a" * 41), ("metadata.name", "1st")],
}


@pytest.mark.parametrize(
    ("where", "path", "value"),
    [(where, path, value) for where, cases in INVALID.items() for path, value in cases],
    ids=lambda each: each if isinstance(each, str) and len(each) < 60 else "",
)
async def test_an_invalid_job_is_refused_with_the_path_of_the_field(client, where, path, value):
    with pytest.raises(ApiError) as refusal:
        await objects.create(client, PATHWAYS_JOBS, changed(training("bad"), path, value), namespace="default")
    assert refusal.value.status == 422
    assert re.search(rf"(^|[ \[]){re.escape(where)}: ", str(refusal.value)), str(refusal.value)


async def test_a_wrong_type_is_called_as_by_a_real_api_server(client):
    job = changed(training("bad"), "spec.workers.0.numSlices", "two")
    with pytest.raises(ApiError) as refusal:
        await objects.create(client, PATHWAYS_JOBS, job, namespace="default")
    field = "spec.workers[0].numSlices"
    said = f'{field}: Invalid value: "string": {field} in body must be of type integer: "string"'
    assert str(refusal.value).endswith(said)


async def test_the_definition_can_be_applied_with_kubectl(client):
    """It keeps what was applied in an annotation, of at most 256 KiB."""
    assert len(json.dumps(definition.definition())) < 128 * 1024


def own_rules(schema):
    """The messages of a schema's rules about a job by itself; those about changes compare it with the old one."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" not in rule["rule"] and not rule["rule"].startswith("self.type != "):
            yield rule["message"]
    for child in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from own_rules(child)


async def test_every_rule_refuses_something(client):
    """The rules about topologies, one for each machine, are held against the catalogue elsewhere."""
    said = ""
    for path, value in (case for cases in INVALID.values() for case in cases):
        with pytest.raises(ApiError) as refusal:
            await objects.create(client, PATHWAYS_JOBS, changed(training("bad"), path, value), namespace="default")
        said += str(refusal.value)
    schema = definition.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rules = list(own_rules(schema))
    assert len(rules) >= 5
    assert [rule for rule in rules if rule not in said] == []


IMMUTABLE = {
    "spec.maxRestarts": 5,
    "spec.pathwaysDir": "gs://other",
    "spec.pathwaysVersion": "v2",
    "spec.workers.0.numSlices": 2,
    "spec.workers.0.priorityClassName": "high",
    "spec.controller.deploymentMode": "colocate_head_with_workers",
    "spec.controller.enableMetricsCollection": True,
    "spec.controller.elasticSlices": 1,
    "spec.controller.template.spec.containers.0.image": "other",
    "spec.customComponents.0.image": "other",
}


@pytest.mark.parametrize("path", IMMUTABLE)
async def test_a_field_cannot_be_changed_later(client, path):
    components = [{"componentType": "worker", "image": "a"}]
    job = training("fixed", maxRestarts=1, pathwaysVersion="v1", customComponents=components)
    job["spec"]["controller"] |= {"enableMetricsCollection": False, "elasticSlices": 0}
    await objects.create(client, PATHWAYS_JOBS, job)
    try:
        with pytest.raises(ApiError, match="is immutable") as refusal:
            await replace(client, changed(job, path, IMMUTABLE[path]))
        top = ".".join(path.split(".")[: 3 if "controller" in path else 2])
        assert f"{top}: " in str(refusal.value)
        # The same again, and other metadata, are no change.
        await replace(client, changed(job, "metadata.labels", {"a": "b"}))
    finally:
        await objects.delete(client, PATHWAYS_JOBS, "fixed", namespace="default")


OPTIONAL = {
    "spec.maxRestarts": 1,
    "spec.pathwaysDir": "gs://bucket/tmp",
    "spec.pathwaysVersion": "v1",
    "spec.customComponents": [{"componentType": "worker", "image": "a"}],
    "spec.controller.enableMetricsCollection": True,
    "spec.controller.elasticSlices": 1,
    "spec.controller.template": training()["spec"]["controller"]["template"],
}


@pytest.mark.parametrize("path", OPTIONAL)
async def test_an_optional_field_can_be_neither_added_nor_removed_later(client, path):
    without = headless("fixed")
    without["spec"].pop("pathwaysDir")
    for before, after in (
        (without, changed(without, path, OPTIONAL[path])),
        (changed(without, path, OPTIONAL[path]), without),
    ):
        await objects.create(client, PATHWAYS_JOBS, before)
        try:
            with pytest.raises(ApiError, match="is immutable") as refusal:
                await replace(client, after)
            assert f"{path}: " in str(refusal.value)
        finally:
            await objects.delete(client, PATHWAYS_JOBS, "fixed", namespace="default")


async def replace(client, job):
    name = job["metadata"]["name"]
    current = await objects.get(client, PATHWAYS_JOBS, name, namespace="default")
    job["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
    return await client.request("PUT", PATHWAYS_JOBS.item("default", name), body=job)
