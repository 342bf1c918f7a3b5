"""Whatever is written in a job, its refusal is a sentence: ``job apply`` by its own path, against a real API server."""

import asyncio
import copy
import random

import pytest
import pytest_asyncio
import yaml
from pathways_jobs import training
from quiet_cluster import QuietCluster
from recorded_shell import RecordedShell

from pathways_jupyter.actions import job as actions
from pathways_jupyter.base.errors import ConfigError, PathwaysError, ServiceError
from pathways_jupyter.kube import objects
from pathways_jupyter.local.apiserver import object_handlers
from pathways_jupyter.local.apiserver.api_errors import bad_request
from pathways_jupyter.service.pathwaysjob import definition, yaml_text

CRDS = objects.Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def apply(tmp_path_factory):
    async with QuietCluster(tmp_path_factory.mktemp("input")) as made:
        async with made.client() as client:
            await objects.create(client, CRDS, definition.definition())
        kubeconfig = made.kubeconfig()

        async def apply(job, **values):
            text = job if isinstance(job, str) else yaml.safe_dump(job, sort_keys=False)
            given = {"kubeconfig": kubeconfig, "dry_run": True, **values}
            return await asyncio.to_thread(actions.create, RecordedShell(), text, given, source="job.yaml")

        apply.listed = lambda: asyncio.to_thread(
            lambda: actions.list_(RecordedShell(), {"kubeconfig": kubeconfig}).value
        )
        yield apply


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def refusal(apply, job, **values):
    with pytest.raises(ConfigError) as refused:
        await apply(job, **values)
    return str(refused.value)


async def test_a_refusal_that_names_no_field_is_shown_in_the_servers_words(apply, monkeypatch):
    webhook = 'admission webhook "quota.example.com" denied the request: quota exceeded'

    def refuse(*_):
        raise bad_request(webhook)

    monkeypatch.setattr(object_handlers, "check_object", refuse)
    assert await refusal(apply, training("a")) == webhook


async def test_an_unknown_field_and_a_wrong_value_are_named_with_their_lines(apply):
    job = training("a")
    job["spec"]["workers"][0]["topology"] = "3x3"
    lines = yaml.safe_dump(job, sort_keys=False).splitlines()
    topology = 1 + next(n for n, each in enumerate(lines) if "3x3" in each)
    said = await refusal(apply, job)
    assert said.startswith(f"Line {topology} of job.yaml: spec.workers[0].topology: ")
    assert "topologies of ct6e-standard-4t: 1x1, 2x2" in said
    job["spec"]["controller"]["wrong"] = 1
    lines = yaml.safe_dump(job, sort_keys=False).splitlines()
    wrong = 1 + next(n for n, each in enumerate(lines) if "wrong" in each)
    assert await refusal(apply, job) == f"Line {wrong} of job.yaml: spec.controller.wrong: unknown field"


@pytest.mark.parametrize("as_jobset", [False, True])
async def test_a_namespace_that_does_not_exist_is_no_missing_api(apply, as_jobset):
    job = training("a")
    job["metadata"]["namespace"] = "nowhere"
    with pytest.raises(ServiceError, match=r"There is no namespace nowhere\."):
        await apply(job, as_jobset=as_jobset)


async def test_what_cannot_change_is_said_with_what_to_do(apply):
    job = training("there")
    await apply(job, dry_run=False)
    job["spec"]["workers"][0]["numSlices"] = 2
    with pytest.raises(ConfigError, match="workers is immutable") as refused:
        await apply(job)
    assert refused.value.hint == "Fields of a job cannot change: apply it under another name."


@pytest.mark.parametrize("value", [5, True, ["a"], {"a": 1}])
@pytest.mark.parametrize("key", ["name", "namespace"])
@pytest.mark.parametrize("as_jobset", [False, True])
async def test_a_name_that_is_no_text_is_named(apply, key, value, as_jobset):
    job = training("a")
    job["metadata"][key] = value
    assert f"of job.yaml: metadata.{key}: must be a text" in await refusal(apply, job, as_jobset=as_jobset)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": []}, "spec: must be a mapping"),
        ({"spec": {}}, "spec.workers: is missing"),
        ({"containers": [""]}, "spec.controller.template.spec.containers[0]: must be a mapping"),
        ({"containers": 1e308}, "spec.controller.template.spec.containers: must be a list"),
        ({"initContainers": "x"}, "spec.controller.template.spec.initContainers: must be a list"),
        ({"pathwaysDir": "s3://b"}, "spec.pathwaysDir: must match"),
        ({"extra": 1}, "spec.extra: unknown field"),
        ({"containers": [{"name": "x"}]}, "spec.controller.mainContainerName: the template has no container 'main'"),
    ],
    ids=str,
)
async def test_a_job_that_is_expanded_here_is_checked_here(apply, change, said):
    job = training("a")
    pod = job["spec"]["controller"]["template"]["spec"]
    for key, value in change.items():
        place = pod if "ontainers" in key else job["spec"] if key in {"extra", "pathwaysDir"} else job
        place[key] = value
    refused = await refusal(apply, job, as_jobset=True)
    assert said in refused
    assert refused.startswith("Line ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spec: " + "[" * 3000, "nested too deeply"),
        ("spec: {a: " + "9" * 5000 + "}", "cannot be read"),
        ("a: &a [x, *a]", "cannot be read"),
        ("a: .nan", "cannot be read"),
        ("a: 0x" + "f" * 6000, "cannot be read"),
        ("a: !!binary aGk=", "type bytes is not JSON serializable"),
        ("? [a]\n: b", "unhashable key"),
    ],
    ids=["deep", "digits", "cycle", "nan", "hexadecimal", "bytes", "list as key"],
)  # fmt: skip
async def test_what_json_cannot_hold_is_refused_in_a_sentence(apply, text, said):
    assert said in await refusal(apply, text)


async def test_a_date_is_text():
    assert yaml_text.parse("a: 2026-01-02") == {"a": "2026-01-02"}


async def test_the_jobset_of_one_user_does_not_hide_the_jobs_of_others(apply):
    """The labels and flags of a JobSet are chosen by its author."""
    job = training("odd")
    job["spec"]["customComponents"] = [
        {
            "componentType": "pathways_server",
            "customFlags": ["--instance_count=" + "9" * 400, "--instance_type=\x1b[2J"],
        }
    ]
    await apply(job, as_jobset=True, dry_run=False)
    found = {each.name: each for each in await apply.listed()}
    assert (found["odd"].slices, found["odd"].instance_type) == (0, "\N{REPLACEMENT CHARACTER}[2J")


JUNK = [
    None, True, 0, -1, 5, 10**30, 1e308, "", "x", "9" * 5000, "a/b", "..", "\0", "ü\n", [], [""], [None], [[]], {},
    {"": ""}, {"name": None}, {"name": []}, {"valueFrom": 1}, [{}], [{"name": "a"}], [{"name": 1}], {"a": {"b": [1]}},
]  # fmt: skip


def mutated(job, choice):
    """The job with something else at one place, or without it."""
    place, key, seen = {"": job}, "", []
    todo = [(place, "")]
    while todo:
        inside, at = todo.pop()
        seen.append((inside, at))
        value = inside[at]
        if isinstance(value, dict | list):
            todo += [(value, each) for each in (value if isinstance(value, dict) else range(len(value)))]
    inside, key = choice.choice(seen[1:])
    match choice.randrange(4):
        case 0 if isinstance(inside, dict):
            inside[choice.choice(["foo", "image", "env", "name", "", "é"])] = choice.choice(JUNK)
        case 1:
            del inside[key]
        case _:
            inside[key] = copy.deepcopy(choice.choice(JUNK))
    return job


FULL = training("full", image="x", maxRestarts=1)
FULL["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}}
FULL["spec"]["customComponents"] = [
    {"componentType": "worker", "image": "i", "customFlags": ["--a"], "customEnv": [{"name": "A", "value": "b"}]}
]
FULL["spec"]["workers"][0] |= {"nodeSelector": {"a": "b"}, "maxSliceRestarts": 2, "terminationGracePeriodSeconds": 5}
FULL["spec"]["controller"] |= {"deploymentMode": "colocate_head_with_workers", "elasticSlices": 1}
FULL["spec"]["controller"]["template"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
FULL["spec"]["controller"]["template"]["spec"] |= {
    "initContainers": [{"name": "i", "image": "x", "env": [{"name": "A", "value": "b"}]}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "nodeSelector": {"a": "b"},
}
FULL["spec"]["controller"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]


@pytest.mark.parametrize("as_jobset", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_any_change_of_a_job_is_taken_or_refused_in_a_sentence(apply, seed, as_jobset):
    choice = random.Random(seed)
    for _ in range(25):
        job = mutated(copy.deepcopy(FULL), choice)
        for _ in range(choice.randrange(2)):
            job = mutated(job, choice) if isinstance(job, dict) else job
        said = "taken"
        try:
            await apply(job, as_jobset=as_jobset)
        except PathwaysError as error:
            said = str(error)
        assert said.strip()
        assert not said.rstrip().endswith(":"), said
