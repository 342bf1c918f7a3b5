"""Defaults, acceptance and refusals of JobSet's webhook and its definition."""

import copy

import pytest

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
PATCH = {"Content-Type": "application/merge-patch+json"}


def replicated(name, **job):
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x:1"}]}
    given = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": {"spec": pod}, **job}
    spec = {key: value for key, value in given.items() if value is not None}
    return {"name": name, "replicas": 2, "template": {"spec": spec}}


def jobset(name="s", **spec):
    made = {"replicatedJobs": [replicated("head"), replicated("worker")], **copy.deepcopy(spec)}
    return {"kind": "JobSet", "metadata": {"name": name}, "spec": made}


RULE = {"name": "first", "action": "FailJobSet"}
HEAD = {"replicatedJob": "head"}


def rules(*given):
    return {"failurePolicy": {"rules": list(given)}}


def network(**given):
    return {"network": given}


def jobs(*given):
    return {"replicatedJobs": list(given)}


REFUSED = {
    "a rule without an action": (rules({"name": "a"}), "spec.failurePolicy.rules[0].action: Required value"),
    "a rule's name": (rules({**RULE, "name": "1st"}), 'spec.failurePolicy.rules[0].name: Invalid value: "1st"'),
    "a rule's longest name": (rules({**RULE, "name": "a" * 129}), "rules[0].name: Too many: 129"),
    "a rule's action": (rules({**RULE, "action": "Fail"}), 'rules[0].action: Unsupported value: "Fail"'),
    "an action behind a gate": (
        rules({**RULE, "action": "RestartJob"}),
        'rules[0].action: Unsupported value: "RestartJob"',
    ),
    "two rules of one name": (rules(RULE, RULE), "rules[1]: Duplicate value: {'name': 'first'}"),
    "a given name that is a default": (
        rules({**RULE, "name": "failurePolicyRule1"}, {"action": "FailJobSet"}),
        "rules[1]: Duplicate value",
    ),
    "a rule's reason": (
        rules({**RULE, "onJobFailureReasons": ["Bad"]}),
        'onJobFailureReasons[0]: Unsupported value: "Bad"',
    ),
    "a rule's target": (rules({**RULE, "targetReplicatedJobs": ["other"]}), "'other' does not appear"),
    "a target of success": (
        {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["other"]}},
        "'other' does not appear",
    ),
    "a strategy behind a gate": (
        {"failurePolicy": {"restartStrategy": "InPlaceRestart"}},
        'restartStrategy: Unsupported value: "InPlaceRestart"',
    ),
    "a Job's name": (jobs(replicated("w" * 60)), "job names generated for this JobSet will exceed 63 characters"),
    "a pod's name": (jobs(replicated("w" * 54)), "pod names generated for this JobSet will exceed 63 characters"),
    "a group's name": (jobs({**replicated("head"), "groupName": "A"}), "spec.replicatedJobs[0].groupName"),
    "replicas times pods": (
        jobs({**replicated("head", parallelism=1 << 20, completions=None), "replicas": 1 << 20}),
        "the product of replicas and parallelism must not exceed 2147483647",
    ),
    "one that depends": (
        jobs(replicated("head"), {**replicated("worker"), "dependsOn": [{"name": "head", "status": "Ready"}]}),
        "the embedded cluster does not evaluate dependsOn",
    ),
    "a subdomain": (network(subdomain="1a"), "spec.network.subdomain"),
    "a long subdomain": (network(subdomain="a" * 64), "spec.network.subdomain: Too many: 64"),
    "a manager": ({"managedBy": "kueue"}, 'spec.managedBy: Invalid value: "kueue"'),
    "a manager's domain": ({"managedBy": "-a.io/foo"}, 'spec.managedBy: Invalid value: "-a.io/foo"'),
    "a long manager": ({"managedBy": "acme.io/" + "a" * 60}, "spec.managedBy: Too many: 68"),
    "a coordinator that is not there": (
        {"coordinator": {"replicatedJob": "zz"}},
        "coordinator replicatedJob zz does not exist",
    ),
    "a coordinator's Job": ({"coordinator": {**HEAD, "jobIndex": 2}}, "coordinator job index 2 is invalid"),
    "a coordinator's pod": ({"coordinator": {**HEAD, "podIndex": 2}}, "coordinator pod index 2 is invalid"),
    "a coordinator without indexes": (
        {"coordinator": HEAD, **jobs(replicated("head", completionMode="NonIndexed"))},
        "job for coordinator pod must be indexed",
    ),
    "a coordinator without completions": (
        {"coordinator": HEAD, **jobs(replicated("head", completions=None))},
        "completions number must be set",
    ),
    "a coordinator's label": (
        {"coordinator": HEAD, **network(subdomain="a" * 60)},
        "spec will lead to invalid label value",
    ),
    "claims of volumes": ({"volumeClaimPolicies": []}, "the embedded cluster does not evaluate volumeClaimPolicies"),
    "a type": (jobs({"name": "a", "template": {"spec": "x"}}), ""),
}
ACCEPTED = {
    "a rule without a name": rules({"action": "FailJobSet"}, {**RULE, "name": ""}),
    "a rule": rules({**RULE, "onJobFailureReasons": ["FailedIndexes"], "targetReplicatedJobs": ["head"]}),
    "a rule's longest name": rules({**RULE, "name": "a" * 128}),
    "a coordinator": {"coordinator": {**HEAD, "jobIndex": 1, "podIndex": 1}},
    "a coordinator by the default mode": {"coordinator": HEAD, **jobs(replicated("head", completionMode=None))},
    "a subdomain": network(subdomain="abc"),
    "no subdomain": network(subdomain=""),
    "a manager": {"managedBy": "kueue.x-k8s.io/multikueue"},
    "names that just fit": jobs(replicated("w" * 51)),
    "no parts": {"replicatedJobs": []},
    "no policies": {},
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_jobset_that_breaks_a_rule_is_refused(bench, what):
    spec, said = REFUSED[what]
    code, refused = await bench.call("POST", f"{JOBSETS}?dryRun=All", jobset(**spec))
    assert (code in {400, 422}, said in refused["message"]) == (True, True), refused


@pytest.mark.parametrize("what", ACCEPTED)
async def test_a_jobset_that_breaks_none_is_accepted(bench, what):
    code, made = await bench.call("POST", f"{JOBSETS}?dryRun=All", jobset(**ACCEPTED[what]))
    assert code == 201, made


async def test_what_a_new_jobset_leaves_out_is_set(bench):
    bare = {"name": "a", "template": {"spec": {"template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}}}
    failure = {"rules": [{"action": "FailJobSet"}, RULE, {"action": "RestartJobSet"}]}
    sent = jobset("bare", failurePolicy=failure, network={"enableDNSHostnames": False}, replicatedJobs=[bare])
    code, made = await bench.call("POST", JOBSETS, sent)
    assert code == 201, made
    spec = made["spec"]
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    assert spec["network"] == {"enableDNSHostnames": False, "publishNotReadyAddresses": True}
    named = [each["name"] for each in spec["failurePolicy"]["rules"]]
    assert named == ["failurePolicyRule0", "first", "failurePolicyRule2"]
    (part,) = spec["replicatedJobs"]
    assert (part["replicas"], part["groupName"]) == (1, "default")
    job = part["template"]["spec"]
    assert (job["completionMode"], job["template"]["spec"]["restartPolicy"]) == ("Indexed", "OnFailure")
    assert bare["template"]["spec"].keys() == {"template"}, "only in the cluster"
    # A new JobSet only: to remove one of them later is a change.
    without = {"spec": {"replicatedJobs": [bare]}}
    code, refused = await bench.call("PATCH", f"{JOBSETS}/bare", without, headers=PATCH)
    assert (code, "field is immutable" in refused["message"]) == (422, True), refused


async def test_the_parts_of_a_jobset_cannot_be_changed_but_where_its_pods_go_while_it_is_suspended(bench):
    code, made = await bench.call("POST", JOBSETS, jobset("fixed", failurePolicy={"maxRestarts": 1}))
    assert code == 201, made
    for change, said in (
        ({"failurePolicy": {"maxRestarts": 2}}, "Value is immutable"),
        ({"replicatedJobs": [replicated("head")]}, "spec.replicatedJobs: Invalid value: field is immutable"),
        ({"managedBy": "acme.io/foo"}, "spec.managedBy: Invalid value: field is immutable"),
    ):
        code, refused = await bench.call("PATCH", f"{JOBSETS}/fixed", {"spec": change}, headers=PATCH)
        assert (code, said in refused["message"]) == (422, True), refused
    moved = jobset("fixed")["spec"]["replicatedJobs"]
    for each in moved:
        each["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    code, _ = await bench.call("PATCH", f"{JOBSETS}/fixed", {"spec": {"replicatedJobs": moved}}, headers=PATCH)
    assert code == 422
    change = {"spec": {"replicatedJobs": moved, "suspend": True}}
    code, suspended = await bench.call("PATCH", f"{JOBSETS}/fixed", change, headers=PATCH)
    assert (code, suspended["spec"]["suspend"]) == (200, True), suspended
