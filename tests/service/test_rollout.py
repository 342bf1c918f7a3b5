"""The steps of a service's start, from the changes of its pods and of the namespace's events."""

import pytest
from service_pods import SERVICE, pod

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.kube.objects import EVENTS, JOBSETS, PODS
from pathways_jupyter.kube.watch import ChangeType
from pathways_jupyter.service import discovery, names, rollout, service_jobset

ADDED, DELETED, SYNCED = ChangeType.ADDED, ChangeType.DELETED, ChangeType.SYNCED


def manifest():
    spec = service_jobset.ServiceSpec(tpu.parse_instance_type("tpuv6e:2x2"), 2, "r/server:1", name=SERVICE)
    made = service_jobset.manifest(spec)
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return made


@pytest.fixture
def start():
    """A start whose pods are listed, and of which there is none yet."""
    made = rollout._Rollout(discovery.describe(manifest()))
    assert said(made.take(PODS, SYNCED, {})) == ["wait The head: no pod yet."]
    return made


def said(steps):
    return [f"{step.tone} {step.message}" for step in steps]


def unscheduled(job, index):
    # As the scheduler writes it; what it says of preemption repeats the rest.
    why = "0/3 nodes fit. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}]
    return pod(job, index, phase="Pending", conditions=conditions)


def waiting(job, index, reason, message):
    status = {"containerStatuses": [{"name": "x", "state": {"waiting": {"reason": reason, "message": message}}}]}
    return pod(job, index, phase="Pending", ready=False, **status)


def event(kind, name, reason, message, *, type_="Warning", time="2026-01-01T00:00:01Z"):
    about = {"kind": kind, "name": name}
    return {
        "metadata": {"creationTimestamp": time},
        "type": type_,
        "reason": reason,
        "message": message,
        "involvedObject": about,
    }


def test_each_part_is_said_once_and_slices_only_after_the_head(start):
    assert said(start.take(PODS, ADDED, unscheduled(names.HEAD_JOB, 0))) == [
        "wait The head: waits for a node: 0/3 nodes fit."
    ]
    assert start.take(PODS, ADDED, unscheduled(names.HEAD_JOB, 0)) == []
    up = said(start.take(PODS, ADDED, pod(names.HEAD_JOB, 0)))
    assert up == ["ok The head is up.", "wait Slice 0: not created yet.", "wait Slice 1: not created yet."]
    assert said(start.take(PODS, ADDED, pod("worker", 1))) == ["ok Slice 1 is up (1 of 2)."]
    assert not start.ready
    assert said(start.take(PODS, ADDED, pod("worker", 0))) == ["ok Slice 0 is up (2 of 2)."]
    assert start.ready
    assert start.head == f"{SERVICE}-{names.HEAD_JOB}-0-0-abcde"


def test_what_does_not_resolve_itself_is_a_warning_with_the_clusters_words(start):
    start.take(PODS, ADDED, pod(names.HEAD_JOB, 0))
    steps = start.take(PODS, ADDED, waiting("worker", 0, "ImagePullBackOff", "no such image"))
    assert said(steps) == ["warn Slice 0: its image cannot be pulled: no such image."]
    assert start.missing() == "2 of 2 slices are not up; slice 0: its image cannot be pulled: no such image"


def test_events_count_for_pods_that_are_there_and_not_ready_and_for_the_services_own_jobs(start):
    start.take(PODS, ADDED, unscheduled("worker", 0))
    start.take(PODS, ADDED, pod("worker", 1))
    late, ready = (f"{SERVICE}-worker-{index}-0-abcde" for index in (0, 1))
    scaling = event("Pod", late, "TriggeredScaleUp", "pool grows", type_="Normal")
    assert said(start.take(EVENTS, ADDED, scaling)) == [f"wait Pod {late}: TriggeredScaleUp: pool grows."]
    assert start.take(EVENTS, ADDED, scaling) == []
    assert said(start.take(EVENTS, ADDED, event("Job", f"{SERVICE}-worker-0", "FailedCreate", "quota."))) == [
        f"warn Job {SERVICE}-worker-0: FailedCreate: quota."
    ]
    for other in (
        event("Pod", ready, "Unhealthy", "probe failed"),
        event("Pod", f"{SERVICE}-worker-9-0-gone", "BackOff", "of a former service"),
        event("Job", f"{SERVICE}2-worker-0", "FailedCreate", "another service"),
        event("Job", f"{SERVICE}-worker-0", "FailedCreate", "of a former service", time="2025-12-31T23:59:59Z"),
        event("Pod", late, "Scheduled", "of no interest", type_="Normal"),
    ):
        assert start.take(EVENTS, ADDED, other) == []


def test_a_service_that_is_deleted_or_has_ended_is_not_waited_for(start):
    ended = {**manifest(), "status": {"conditions": [{"type": "Failed", "status": "True", "message": "too often"}]}}
    with pytest.raises(ServiceError, match=r"will not come back: its JobSet has failed for good \(too often\)"):
        start.take(JOBSETS, ADDED, ended)
    with pytest.raises(ServiceError, match="was deleted"):
        start.take(JOBSETS, DELETED, manifest())
