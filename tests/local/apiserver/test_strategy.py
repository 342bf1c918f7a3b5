"""Defaults and rules of kinds, on objects without a store."""

from __future__ import annotations

import base64
import copy

import pytest

from pathways_jupyter.local.apiserver import resources as kinds
from pathways_jupyter.local.apiserver.access import Users
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.credentials import pod_account
from pathways_jupyter.local.apiserver.strategy import prepare

TWO_SOURCES = {"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
VOLUME = {"name": "v", "emptyDir": {}}
MOUNT = {"name": "v", "mountPath": "/v"}
METADATA = {"name": "x", "namespace": "default", "uid": "01020304-0000"}


def pod_spec(**container):
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a/b:1", **container}]}


def made(resource, **fields):
    obj = {"metadata": copy.deepcopy(METADATA), **copy.deepcopy(fields)}
    prepare(resource, obj, None)
    return obj


def job(**spec):
    return made(kinds.JOBS, spec={"template": {"spec": pod_spec()}, **spec})


def refused(resource, **fields) -> str:
    with pytest.raises(StatusError) as error:
        made(resource, **fields)
    assert error.value.status == 422
    return str(error.value)


def test_a_status_that_a_client_sends_is_not_taken():
    assert made(kinds.PODS, spec=pod_spec(), status={"phase": "Running"})["status"] == {"phase": "Pending"}
    assert made(kinds.NODES, status={"ready": True})["status"] == {}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("host:5000/a", "Always"),
        (f"a@sha256:{'0' * 64}", "IfNotPresent"),
    ],
)
def test_an_image_whose_tag_may_move_is_always_pulled(image, policy):
    assert made(kinds.PODS, spec=pod_spec(image=image))["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_limits_are_requests_where_there_are_none():
    limits = {"cpu": "2", "memory": "1Gi"}
    (container,) = made(kinds.PODS, spec=pod_spec(resources={"limits": limits, "requests": {"cpu": "1"}}))["spec"][
        "containers"
    ]
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "spec.containers: Required value"),
        (pod_spec(name="A"), "spec.containers[0].name: Invalid value"),
        (pod_spec(image=""), "spec.containers[0].image: Required value"),
        (pod_spec(imagePullPolicy="Often"), 'Unsupported value: "Often"'),
        (pod_spec(ports=[{"containerPort": 0}]), "must be between 1 and 65535"),
        (pod_spec(ports=[{"containerPort": 99999}]), "spec.containers[0].ports[0].containerPort: Invalid value: 99999"),
        (pod_spec(env=[{"value": "x"}]), "spec.containers[0].env[0].name: Required value"),
        (pod_spec(env=[{"name": "", "value": "x"}]), "spec.containers[0].env[0].name: Required value"),
        (pod_spec(env=[TWO_SOURCES]), 'env[0].valueFrom: Invalid value: "": may not be specified when `value`'),
        ({**pod_spec(), "volumes": [VOLUME, VOLUME]}, 'spec.volumes[1].name: Duplicate value: "v"'),
        ({**pod_spec(volumeMounts=[MOUNT, MOUNT]), "volumes": [VOLUME]}, "volumeMounts[1].mountPath: Invalid value"),
        (pod_spec(resources={"requests": {"cpu": "-1"}}), 'requests[cpu]: Invalid value: "-1"'),
        (
            pod_spec(resources={"limits": {"memory": "1G"}, "requests": {"memory": "1Gi"}}),
            "less than or equal to memory limit of 1G",
        ),
        (pod_spec(volumeMounts=[{"name": "v", "mountPath": "/v"}]), 'Not found: "v"'),
        (pod_spec(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}), "less than or equal to cpu limit"),
        (
            pod_spec(resources={"limits": {"google.com/tpu": "500m"}}),
            '[google.com/tpu]: Invalid value: "500m": must be an integer',
        ),
        (
            pod_spec(resources={"limits": {"google.com/tpu": "1"}, "requests": {"google.com/tpu": "1e30"}}),
            "less than or equal to google.com/tpu limit of 1",
        ),
        ({**pod_spec(), "restartPolicy": "Maybe"}, 'spec.restartPolicy: Unsupported value: "Maybe"'),
        ({"containers": pod_spec()["containers"] * 2}, 'Duplicate value: "main"'),
    ],
)
def test_a_fault_of_a_pod_is_named_by_its_field(spec, said):
    assert said in refused(kinds.PODS, spec=spec)


def test_a_job_gets_its_defaults_and_a_selector_of_its_own():
    spec = job()["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"], spec["suspend"]) == (1, 1, 6, False)
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": METADATA["uid"]}}
    labels = spec["template"]["metadata"]["labels"]
    assert (labels["job-name"], labels["batch.kubernetes.io/controller-uid"]) == ("x", METADATA["uid"])
    assert "completions" not in job(parallelism=3)["spec"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"selector": {"matchLabels": {"a": "b"}}}, "`selector` not auto-generated"),
        ({"completionMode": "Sorted"}, 'Unsupported value: "Sorted"'),
        ({"completionMode": "Indexed", "parallelism": 2}, "when completion mode is Indexed"),
        ({"template": {"spec": {**pod_spec(), "restartPolicy": "Always"}}}, 'supported values: "OnFailure", "Never"'),
        ({"template": {"spec": {"containers": pod_spec()["containers"]}}}, 'valid values: "OnFailure", "Never"'),
        ({"template": {"spec": {**pod_spec(), "containers": []}}}, "spec.template.spec.containers: Required value"),
    ],
)
def test_a_fault_of_a_job_is_named(spec, said):
    assert said in refused(kinds.JOBS, spec={"template": {"spec": pod_spec()}, **spec})


def changed(old, change):
    new = copy.deepcopy(old)
    change(new)
    prepare(kinds.JOBS, new, old)


@pytest.mark.parametrize(("suspended", "started"), [(True, False), (True, True), (False, False)])
def test_where_a_suspended_job_goes_may_change_until_it_starts(suspended, started):
    old = job(suspend=suspended)
    old["status"] = {"startTime": "2026-01-01T00:00:00Z"} if started else {}

    def move(new):
        new["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}

    if started or not suspended:
        with pytest.raises(StatusError, match=r"spec.template: Invalid value: field is immutable"):
            changed(old, move)
    else:
        changed(old, move)
    with pytest.raises(StatusError, match=r"spec.template: Invalid value: field is immutable"):
        changed(old, lambda new: new["spec"]["template"]["spec"]["containers"][0].update(image="other"))
    with pytest.raises(StatusError, match=r"spec.completions: Invalid value: field is immutable"):
        changed(old, lambda new: new["spec"].update(completions=5))
    for field in ({"selector": {"matchLabels": {"a": "b"}}}, {"completionMode": "Indexed"}):
        with pytest.raises(StatusError, match="field is immutable"):
            changed(old, lambda new, field=field: new["spec"].update(field))
    changed(old, lambda new: new["spec"].update(parallelism=0, suspend=False))


def test_a_pods_image_may_change_and_its_command_may_not():
    old = made(kinds.PODS, spec=pod_spec())
    for change, fits in (({"image": "other:1"}, True), ({"command": ["x"]}, False)):
        new = copy.deepcopy(old)
        new["spec"]["containers"][0].update(change)
        if fits:
            prepare(kinds.PODS, new, old)
            continue
        with pytest.raises(StatusError, match="pod updates may not change fields"):
            prepare(kinds.PODS, new, old)


OUT = {"automountServiceAccountToken": False}


@pytest.mark.parametrize(
    ("spec", "account", "has"),
    [
        ({}, {}, True),
        ({}, OUT, False),
        (OUT, {}, False),
        ({"automountServiceAccountToken": True}, OUT, True),
        ({}, None, False),
    ],
)
def test_a_pod_gets_its_accounts_token_unless_either_opts_out(tmp_path, spec, account, has):
    # A pod decides over its account.
    ca, users = tmp_path / "ca.crt", Users()
    ca.write_text("x")
    about = None if account is None else {"metadata": {"name": "default", "namespace": "default"}, **account}
    pod = {"metadata": METADATA, "spec": {**pod_spec(), **spec}}
    found = pod_account(pod, about, directory=tmp_path / "pod", url="https://127.0.0.1:1", ca=ca, users=users)
    assert found["KUBERNETES_SERVICE_PORT"] == "1"
    assert (("KUBECONFIG" in found), (tmp_path / "pod" / "serviceaccount" / "token").exists()) == (has, has)


def test_a_service_gets_an_address_and_the_same_one_again():
    spec = made(kinds.SERVICES, spec={"ports": [{"port": 80}]})["spec"]
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert spec["clusterIP"] == "10.96.1.2" == made(kinds.SERVICES)["spec"]["clusterIP"]


def test_plain_text_of_a_secret_is_kept_encoded():
    secret = made(kinds.SECRETS, stringData={"a": "b"}, data={"c": "ZA=="})
    assert secret["data"] == {"a": base64.b64encode(b"b").decode(), "c": "ZA=="}
    assert "stringData" not in secret


def test_a_claim_is_bound_at_once_and_needs_a_size():
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = made(kinds.PERSISTENT_VOLUME_CLAIMS, spec=spec)
    assert claim["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    assert "spec.resources[storage]: Required value" in refused(
        kinds.PERSISTENT_VOLUME_CLAIMS, spec={"accessModes": []}
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"group": ""}, "spec.group: Required value"),
        ({"names": {"plural": "others", "kind": "X"}}, 'must be spec.names.plural+"."+spec.group'),
        ({"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {}}}]}, "exactly one version marked as storage"),
        ({"versions": [{"name": "v1", "storage": True}]}, "Required value: schemas are required"),
    ],
)
def test_a_definition_that_cannot_be_served_is_refused(change, said):
    spec = {
        "group": "g.io",
        "names": {"plural": "xs", "kind": "X"},
        "versions": [{"name": "v1", "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }
    metadata = {"name": "xs.g.io", "uid": "1"}
    definition = {"metadata": metadata, "spec": copy.deepcopy(spec)}
    prepare(kinds.CRDS, definition, None)
    assert definition["spec"]["names"] == {"plural": "xs", "kind": "X", "singular": "x", "listKind": "XList"}
    assert [each["type"] for each in definition["status"]["conditions"]] == ["NamesAccepted", "Established"]
    with pytest.raises(StatusError) as error:
        prepare(kinds.CRDS, {"metadata": metadata, "spec": {**spec, **change}}, None)
    assert said in str(error.value)
