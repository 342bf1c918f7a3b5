"""Whatever is written in a job, its refusal is a sentence: ``job apply`` by its own path, against a real API server."""

import asyncio
import copy
import json
import random
import shutil
import subprocess
from itertools import pairwise

import pytest
import pytest_asyncio
import yaml
from kinds import CRDS
from pathways_jobs import training
from quiet_cluster import QuietCluster
from recorded_shell import RecordedShell

from pathways_jupyter.actions import job as actions
from pathways_jupyter.base.errors import ConfigError, PathwaysError, ServiceError
from pathways_jupyter.kube import objects
from pathways_jupyter.local.apiserver import object_handlers
from pathways_jupyter.local.apiserver.api_errors import StatusError, bad_request
from pathways_jupyter.service.pathwaysjob import definition, yaml_text


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


async def test_a_list_of_a_real_api_server_is_taken_apart(apply, monkeypatch):
    name, kind = "spec.workers[0].topology", 'PathwaysJob.pathways-job.pathways.domain "a" is invalid: '
    remark = "some validation rules were not checked because the object was invalid; correct the existing errors"
    causes = (
        f"{name}: Too long: may not be more than 16 bytes",
        "spec.pathwaysDir: Invalid value: \"s3://b\": spec.pathwaysDir in body should match '^(gs://.+)?$'",
        f'<nil>: Invalid value: "null": {remark} to complete validation',
    )

    def refuse(resource, *_):
        if resource.kind == "Job":
            raise bad_request("of the Job, that it has no such pod, is not said here")
        raise StatusError(422, f"{kind}[{', '.join(causes)}]")

    monkeypatch.setattr(object_handlers, "check_object", refuse)
    assert [line.partition(" of job.yaml: ")[2] for line in (await refusal(apply, training("a"))).splitlines()] == [
        f"{name}: Too long: may not be more than 16 bytes",
        "spec.pathwaysDir: Invalid value: \"s3://b\": spec.pathwaysDir in body should match '^(gs://.+)?$'",
    ]


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
    assert f"of job.yaml: metadata.{key}: must be a string, not " in await refusal(apply, job, as_jobset=as_jobset)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": []}, "spec: must be an object, not an array"),
        ({"spec": {}}, "spec.workers: is missing"),
        ({"containers": [""]}, 'spec.controller.template.spec.containers[0]: must be an object, not the string ""'),
        ({"containers": 1e308}, "spec.controller.template.spec.containers: must be an array, not the number 1e+308"),
        ({"initContainers": "x"}, 'spec.controller.template.spec.initContainers: must be an array, not the string "x"'),
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


POD = "spec.controller.template.spec"
MAIN = f"{POD}.containers[0]"
QUOTE = "put it in quotation marks"
WRONG_PODS = [
    # As they are found in people's files: what is written, and what is said of it.
    ({"env": [{"name": "BATCH", "value": 8}]}, "value: 8", f"value: must be a string, not the integer 8; {QUOTE}"),
    ({"command": ["sleep", 1]}, "- 1", f"command[1]: must be a string, not the integer 1; {QUOTE}"),
    ({"command": "python t.py"}, "command:", 'write each word as an entry: ["python", "t.py"]'),
    ({"image": 3.13}, "image:", f"image: must be a string, not the number 3.13; {QUOTE}"),
    ({"comand": ["x"]}, "comand:", "comand: unknown field; did you mean command?"),
    (
        {"resources": {"limits": {"memory": "100GB"}}},
        "memory:",
        'resources.limits.memory: must be a quantity, not the string "100GB"; write 100G',
    ),
    (
        {"ports": [{"containerPort": "8080"}]},
        "containerPort:",
        'ports[0].containerPort: must be an integer, not the string "8080"; write 8080 without quotation marks',
    ),
    ({"ports": [{"containerPort": 80800}]}, "containerPort:", "ports[0].containerPort: Invalid value: 80800: must be"),
    ({"stdin": "true"}, "stdin:", 'must be a boolean, not the string "true"; write true without quotation marks'),
    ({"env": {"BATCH": "8"}}, "env:", "env: must be an array, not an object; begin each entry with a dash"),
    # The line of what lacks it.
    ({"env": [{"value": "8"}]}, "- value:", "env[0].name: is missing"),
    ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "name: v", 'volumeMounts[0].name: Not found: "v"'),
    ({"imagePullPolicy": "always"}, "imagePullPolicy:", 'imagePullPolicy: Unsupported value: "always"'),
    ({"image": "r/${TAG}"}, "r/$", 'image: nothing replaced the variable ${TAG} in the string "r/${TAG}"'),
    ({"env": [{"name": "T", "value": "${TOKEN}"}]}, "value:", "env[0].value: nothing replaced the variable ${TOKEN}"),
]  # fmt: skip


@pytest.mark.parametrize(("container", "line", "said"), WRONG_PODS, ids=lambda each: each if "{" not in each else "")
async def test_a_pod_that_cannot_be_made_is_refused_with_the_line_and_what_was_meant(apply, container, line, said):
    job = training("a")
    job["spec"]["controller"]["template"]["spec"]["containers"][0] |= container
    text = yaml.safe_dump(job, sort_keys=False)
    number = 1 + next(number for number, each in enumerate(text.splitlines()) if line in each)
    refused = await refusal(apply, text)
    assert refused.startswith(f"Line {number} of job.yaml: {MAIN}.")
    assert said in refused


@pytest.mark.parametrize("as_jobset", [False, True])
async def test_nothing_is_created_of_a_job_whose_pod_cannot_be_made(apply, as_jobset):
    job = training("half")
    (main,) = job["spec"]["controller"]["template"]["spec"]["containers"]
    # Both are faults that only the cluster names.
    for wrong in ({"comand": ["x"]}, {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}):
        given = {**main, **wrong}
        job["spec"]["controller"]["template"]["spec"]["containers"] = [given]
        assert "Line " in await refusal(apply, job, as_jobset=as_jobset, dry_run=False)
    assert "half" not in {each.name for each in await apply.listed()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hostNetwork": "true"}, f"{POD}.hostNetwork: must be a boolean"),
        ({"initContainers": [{"name": "i", "image": "x", "args": [True]}]}, "initContainers[0].args[0]: must be"),
        ({"initContainers": [{"name": "main", "image": "x"}]}, f'{POD}.containers[0].name: Duplicate value: "main"'),
        ({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "10 gb"}}]}, "volumes[0].emptyDir.sizeLimit: must be"),
        ({"volumes": [{"name": "v", "hostPath": {"paht": "/x"}}]}, "hostPath.path: is missing; you wrote paht"),
        ({"customEnv": [{"name": "A", "value": 5}]}, "spec.customComponents[0].customEnv[0].value: must be a string"),
        ({"customEnv": [{"name": "A", "valu": "5"}]}, "customEnv[0].valu: unknown field; did you mean value?"),
        ({"numSlices": "${N}"}, 'numSlices: must be an integer, not the string "${N}", in which nothing'),
    ],
    ids=str,
)  # fmt: skip
async def test_the_other_parts_of_a_job_are_checked_like_its_container(apply, change, said):
    job = training("a")
    match [*change]:
        case ["customEnv"]:
            job["spec"]["customComponents"] = [{"componentType": "worker", **change}]
        case ["numSlices"]:
            job["spec"]["workers"][0] |= change
        case _:
            job["spec"]["controller"]["template"]["spec"] |= change
    assert said in await refusal(apply, job)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"pathwaysDir": "gs://<test-bucket>/tmp"},
            "spec.pathwaysDir: 'gs://<test-bucket>/tmp' is not a bucket address",
        ),
        ({"priorityClassName": "<high>"}, "spec.workers[0].priorityClassName: "),
        ({"nodeSelector": {"pool": "<name of the pool>"}}, "spec.workers[0].nodeSelector: "),
        ({"labels": {"kueue.x-k8s.io/queue-name": "<queue>"}}, "metadata.labels: "),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_jobset", [False, True])
async def test_a_field_passes_the_checks_of_the_setting_that_means_the_same(apply, change, said, as_jobset):
    job = training("a")
    match [*change]:
        case ["pathwaysDir"]:
            job["spec"] |= change
        case ["labels"]:
            job["metadata"] |= change
        case _:
            job["spec"]["workers"][0] |= change
    refused = await refusal(apply, job, as_jobset=as_jobset)
    assert refused.startswith("Line ")
    assert said in refused


async def test_a_shells_own_variables_stay(apply):
    job = training("shell", "bash", "-c", "echo ${HOME}")
    env = [{"name": "PS1", "value": "${user}@host"}]
    job["spec"]["controller"]["template"]["spec"]["containers"][0]["env"] = env
    job["metadata"]["annotations"] = {"note": "${x}"}
    assert (await apply(job)).text == "Job shell: valid."


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("100GB", "100G"), ("16gb", "16G"), ("16 Gi", "16Gi"), ("8KB", "8k"), ("8kib", "8Ki"), ("1.5tb", "1.5T"),
        ("512b", "512"), ("lots", "a number with a unit, such as 500m, 16G or 16Gi"),
    ],
)  # fmt: skip
async def test_a_quantity_is_put_right(apply, wrong, right):
    job = training("a")
    resources = {"limits": {"memory": wrong}}
    job["spec"]["controller"]["template"]["spec"]["containers"][0]["resources"] = resources
    assert (await refusal(apply, job)).endswith(f"; write {right}")


async def test_a_user_who_may_not_create_jobs_reads_that_the_pod_was_not_checked(apply, monkeypatch):
    """The cluster's rules of a pod are asked for with a Job, which is not created."""
    check = object_handlers.check_object

    def refuse_jobs(resource, *rest):
        if resource.kind == "Job":
            raise StatusError(403, 'jobs.batch is forbidden: User "jane" cannot create resource "jobs"')
        return check(resource, *rest)

    monkeypatch.setattr(object_handlers, "check_object", refuse_jobs)
    said = (await apply(training("a"))).text
    assert said.startswith("Job a: valid, but its pod could not be checked (")
    assert "jobs.batch is forbidden" in said
    assert (await apply(training("unchecked"), dry_run=False)).text == "Job unchecked: created."


BOMB = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in pairwise("abcdefg")
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spec: " + "[" * 3000, "nested too deeply"),
        ("spec: {a: " + "9" * 5000 + "}", "cannot be read"),
        ("{" * 2500, "nested too deeply"),
        ("- " * 3000 + "a", "nested too deeply"),
        ("a: 1\nb: 2\na: 3", "Line 3: a is here and in line 1; remove one."),
        ("a: b\n c: d\n", "Line 2: mapping values are not allowed here"),
        ("a: &a [x, *a]", "cannot be read"),
        (BOMB, "Line 6: it has more than 200000 values."),
        ("a: .nan", "cannot be read"),
        ("a: 0x" + "f" * 6000, "cannot be read"),
        ("a: !!binary aGk=", "type bytes is not JSON serializable"),
        ("? [a]\n: b", "unhashable key"),
    ],
    ids=[
        "deep", "digits", "braces", "lists", "twice", "mapping", "cycle", "aliases", "nan", "hexadecimal", "bytes",
        "list key",
    ],
)  # fmt: skip
async def test_what_json_cannot_hold_is_refused_in_a_sentence(apply, text, said):
    assert said in await refusal(apply, text)


async def test_a_merged_key_is_not_there_twice():
    assert yaml_text.parse("a: &a {k: 1}\nb: {<<: *a, k: 2}")["b"] == {"k": 2}


UNQUOTED = (
    *("2026-01-02", "22:22", "1:30:00", "1.5.2", "1e3s", "nn", "yEs", "0x", "0b", "1e", ".", "_1", "="),
    *(
        "y",
        "Y",
        "yes",
        "Yes",
        "YES",
        "on",
        "On",
        "ON",
        "true",
        "n",
        "N",
        "no",
        "No",
        "NO",
        "off",
        "Off",
        "OFF",
        "false",
    ),
    *('"n"', "'n'", "", "~", "null", "0", "-3", "+5", "010", "0o17", "0x1F", "-0x10", "0b11", "1_000", "1_", "08"),
    *("1.", ".5", "+.5", "1e3", "-1.5e2", "1.25", "1_0.5", "1e30"),
)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_values_and_keys_without_quotation_marks_are_what_kubectl_reads():
    listed = "".join(f"  - {text}\n" for text in UNQUOTED)
    keys = "".join(f"    {key}: 1\n" for key in ("n", "on", '"y"', "5", "1.5"))
    text = f"apiVersion: x.io/v1\nkind: X\nmetadata: {{name: x}}\nspec:\n  values:\n{listed}  keys:\n{keys}"
    label = ["kubectl", "label", "--local", "-f", "-", "a=b", "-o", "json"]
    ran = await asyncio.to_thread(subprocess.run, label, input=text, capture_output=True, text=True, check=True)
    read = json.loads(ran.stdout)["spec"]
    # As JSON, in which true is not 1.
    assert json.dumps(yaml_text.parse(text)["spec"]["values"]) == json.dumps(read["values"])
    assert yaml_text.parse(text)["spec"]["keys"] == read["keys"]


async def test_an_unquoted_n_in_a_template_is_refused_as_the_cluster_refuses_it(apply):
    job = training("letters", "true")
    text = yaml.safe_dump(job, sort_keys=False)
    assert "- 'true'" in text
    said = await refusal(apply, text.replace("- 'true'", "- n"))
    assert "must be a string, not the boolean false; put it in quotation marks" in said


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
