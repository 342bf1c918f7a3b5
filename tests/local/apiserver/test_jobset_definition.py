"""Refusals of JobSet's webhook and its definition."""

import copy

import pytest

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
PATCH = {"Content-Type": "application/merge-patch+json"}


def replicated(name, **job):
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x:1"}]}
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": {"spec": pod}, **job}
    return {"name": name, "replicas": 2, "template": {"spec": spec}}


def jobset(name="s", **spec):
    made = {"replicatedJobs": [replicated("head"), replicated("worker")], **copy.deepcopy(spec)}
    return {"kind": "JobSet", "metadata": {"name": name}, "spec": made}


RULE = {"name": "first", "action": "FailJobSet"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"failurePolicy": {"rules": [{"action": "FailJobSet"}]}}, "spec.failurePolicy.rules[0].name: Required value"),
        ({"failurePolicy": {"rules": [{"name": "a"}]}}, "spec.failurePolicy.rules[0].action: Required value"),
        ({"failurePolicy": {"rules": [{**RULE, "name": "1st"}]}}, "spec.failurePolicy.rules[0].name: Invalid value"),
        ({"failurePolicy": {"rules": [{**RULE, "action": "Fail"}]}}, "Unsupported value"),
        ({"failurePolicy": {"rules": [RULE, RULE]}}, "Duplicate value"),
        ({"failurePolicy": {"rules": [{**RULE, "onJobFailureReasons": ["Bad"]}]}}, "Unsupported value"),
        ({"failurePolicy": {"rules": [{**RULE, "targetReplicatedJobs": ["other"]}]}}, "'other' does not appear"),
        ({"successPolicy": {"operator": "All", "targetReplicatedJobs": ["other"]}}, "'other' does not appear"),
        ({"replicatedJobs": [replicated("w" * 60)]}, "job names generated for this JobSet will exceed 63 characters"),
        ({"replicatedJobs": [replicated("w" * 54)]}, "pod names generated for this JobSet will exceed 63 characters"),
        ({"replicatedJobs": [{"name": "a", "template": {"spec": "x"}}]}, ""),
    ],
)
async def test_a_jobset_that_breaks_a_rule_is_refused(bench, spec, said):
    code, refused = await bench.call("POST", f"{JOBSETS}?dryRun=All", jobset(**spec))
    assert (code in {400, 422}, said in refused["message"]) == (True, True), refused


async def test_the_parts_of_a_jobset_cannot_be_changed_but_where_its_pods_go_while_it_is_suspended(bench):
    code, made = await bench.call("POST", JOBSETS, jobset("fixed", failurePolicy={"maxRestarts": 1}))
    assert code == 201, made
    for change, said in (
        ({"failurePolicy": {"maxRestarts": 2}}, "Value is immutable"),
        ({"replicatedJobs": [replicated("head")]}, "spec.replicatedJobs: Invalid value: field is immutable"),
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
