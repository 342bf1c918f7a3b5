"""Facts about pods: found by the pods' purpose, and only worked out again when they have changed."""

import random

from service_pods import SERVICE, pod

from pathways_jupyter.service import names
from pathways_jupyter.service.namespacestate import PodIndex
from pathways_jupyter.service.podstate import State


def names_of(pods):
    return [each.name for each in pods]


def test_pods_are_found_by_what_they_are_for():
    index = PodIndex([pod(names.HEAD_JOB, 0, name="head"), pod("worker", 0, name="w0"), pod("worker", 1, name="w1")])
    assert names_of(index.of_head(SERVICE)) == ["head"]
    assert names_of(index.of_slice(SERVICE, "worker", 1)) == ["w1"]
    assert index.of_slice(SERVICE, "worker", 2) == ()
    assert index.of_slice("another", "worker", 1) == ()
    assert index.get("w0").state is State.READY


def test_a_pod_of_a_job_without_a_jobset_is_found_by_its_job():
    proxy = {
        "metadata": {"name": "proxy-abcde", "uid": "u", "ownerReferences": [{"name": "proxy", "controller": True}]},
        "status": {"phase": "Running"},
    }
    index = PodIndex([proxy])
    assert names_of(index.of_job("proxy")) == ["proxy-abcde"]
    assert index.drop("proxy-abcde")
    assert not index.drop("proxy-abcde")
    assert index.of_job("proxy") == ()


def test_a_change_that_no_picture_shows_is_none():
    index = PodIndex([pod("worker", 0, name="w0"), pod("worker", 1, name="w1")])
    before = index.of_slice(SERVICE, "worker", 0), index.of_slice(SERVICE, "worker", 1)
    beat = pod("worker", 0, name="w0")
    beat["metadata"]["resourceVersion"] = "7"
    assert not index.put(beat)
    assert index.of_slice(SERVICE, "worker", 0) is before[0]
    assert index.put(pod("worker", 0, name="w0", ready=False))
    assert index.of_slice(SERVICE, "worker", 0) != before[0]
    assert index.of_slice(SERVICE, "worker", 1) is before[1]


def test_after_any_changes_it_is_as_if_it_were_made_anew():
    chance, known, index = random.Random(7), {}, PodIndex()
    for _ in range(500):
        name = f"p{chance.randrange(12)}"
        if chance.random() < 0.3:
            assert index.drop(name) == (known.pop(name, None) is not None)
            continue
        # A pod may even move to another slice, if it was deleted and made again under its name meanwhile.
        known[name] = pod(
            chance.choice(["worker", names.HEAD_JOB]),
            chance.randrange(3),
            name=name,
            ready=chance.random() < 0.5,
            created=f"2026-01-01T00:00:{int(name[1:]):02}Z",
        )
        index.put(known[name])
        anew = PodIndex(known.values())
        assert index.of_head(SERVICE) == anew.of_head(SERVICE)
        for each in range(3):
            assert index.of_slice(SERVICE, "worker", each) == anew.of_slice(SERVICE, "worker", each)


def test_a_pod_that_is_only_labelled_as_a_worker_or_a_head_is_none():
    for part in (names.HEAD_JOB, "worker"):
        real, imposter, orphan = pod(part, 0, name="real"), pod(part, 0, name="imposter"), pod(part, 0, name="orphan")
        imposter["metadata"]["ownerReferences"][0]["name"] = "job-of-mallory"
        orphan["metadata"]["ownerReferences"] = []
        index = PodIndex([real, imposter, orphan])
        found = index.of_head(SERVICE) if part == names.HEAD_JOB else index.of_slice(SERVICE, part, 0)
        assert names_of(found) == ["real"]
