import dataclasses
import json
import re
import time
from types import SimpleNamespace

import pytest
from service_pods import SERVICE, pod

from pathways_jupyter.base import tpu
from pathways_jupyter.cli.terminal import show_json
from pathways_jupyter.kube import objects
from pathways_jupyter.render import services, slices
from pathways_jupyter.service import discovery, names, proxy_job, service_jobset, status
from pathways_jupyter.service.derivation import derive
from pathways_jupyter.service.model import Holder
from pathways_jupyter.service.namespacestate import PodIndex
from pathways_jupyter.service.placement import Placement
from pathways_jupyter.service.podstate import State, pod_state


def made(slices=2, instance="tpuv6e:2x2", **changes):
    manifest = service_jobset.manifest(
        service_jobset.ServiceSpec(tpu.parse_instance_type(instance), slices, "r/server:1", name=SERVICE)
    )
    manifest["status"] = {"conditions": [{"type": "StartupPolicyCompleted", "status": "True"}]}
    return dataclasses.replace(discovery.describe(manifest), **changes)


def cluster_pods(slices=2, hosts=1):
    workers = [pod("worker", index, host) for index in range(slices) for host in range(hosts)]
    return [pod(names.HEAD_JOB, 0), *workers]


def a_proxy(session, user="jane", instances=None, *, created="2026-01-01T10:00:00Z", **changes):
    spec = proxy_job.ProxySpec(
        session=session,
        service=SERVICE,
        address=service_jobset.address(SERVICE),
        image="r/proxy_server:1",
        instances=instances or {"tpuv6e:2x2": 1},
        user=user,
        notebook="work/train.ipynb",
    )
    job = proxy_job.job(spec)
    job["metadata"] |= {"creationTimestamp": created, "uid": session, **changes.pop("metadata", {})}
    return {**job, **changes}


def proxy_pod(job):
    name = job["metadata"]["name"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u", "controller": True}
    return {
        "metadata": {"name": f"{name}-xyz12", "namespace": "default", "ownerReferences": [owner]},
        "status": {"phase": "Running"},
    }


def draw(pods, jobs=(), placements=None, service=None):
    return derive(service or made(), pods=PodIndex(pods), jobs=jobs, placements=placements)


def test_a_service_whose_pods_are_ready_is_ready():
    drawn = draw(cluster_pods())
    assert drawn.state is State.READY
    assert [each.state for each in drawn.slices] == [State.READY, State.READY]
    assert drawn.slices[1].hosts[0].node == "node-1-0"
    assert (drawn.free, drawn.certain, drawn.holders) == (2, True, ())


def test_an_overview_is_printed_with_what_the_jobset_says_and_with_what_is_seen(capsys):
    service, job = made(created=7.0, image="r/server:jax-0.10.2", sidecar_image="r/sidecar:1"), a_proxy("s1")
    placement = Placement(slices={0: f"{SERVICE}-worker-1"})
    pods = [*cluster_pods()[:-1], pod("worker", 1, ready=False), proxy_pod(job)]
    drawn = draw(pods, [job], {f"{job['metadata']['name']}-xyz12": placement}, service)
    show_json(status.Overview.of(service, drawn))
    printed = json.loads(capsys.readouterr().out)
    assert printed == {
        **dataclasses.asdict(service),
        "state": "ready",
        "ready": 1,
        "in_use": 1,
        "free": 1,
        "users": ["jane (train.ipynb)"],
        "jax": "0.10.2",
        "clock_ahead": 0,
        "reason": "",
    }
    described = {
        "name": SERVICE,
        "namespace": "default",
        "address": service_jobset.address(SERVICE),
        "instance_type": "tpuv6e:2x2",
        "slices": 2,
        "hosts_per_slice": 1,
        "image": "r/server:jax-0.10.2",
        "sidecar_image": "r/sidecar:1",
        "created": 7.0,
    }
    assert {name: printed[name] for name in described} == described


@pytest.mark.parametrize(
    ("worker", "state", "reason"),
    [
        (pod("worker", 1, ready=False), State.STARTING, "NotReady"),
        (pod("worker", 1, phase="Pending", ready=False), State.STARTING, "Pending"),
        (pod("worker", 1, phase="Failed", ready=False, reason="Evicted"), State.DOWN, "Evicted"),
        (pod("worker", 1, deleted=True), State.DOWN, "Terminating"),
        (pod("worker", 1, phase="Pending", ready=False,
             containerStatuses=[{"name": "w", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]),
         State.DOWN, "ImagePullBackOff"),
        (None, State.DOWN, "no pod"),
    ],
)  # fmt: skip
def test_a_slice_is_as_well_as_its_worst_host(worker, state, reason):
    pods = [pod(names.HEAD_JOB, 0), pod("worker", 0), *([worker] if worker else [])]
    drawn = draw(pods)
    assert [each.state for each in drawn.slices] == [State.READY, state]
    assert drawn.slices[1].hosts[0].reason == reason
    assert drawn.free == 1


def test_one_host_of_many_takes_its_slice_down():
    pods = [each for each in cluster_pods(1, 4) if not each["metadata"]["name"].endswith("worker-0-2-abcde")]
    (only,) = draw(pods, service=made(1, "tpuv6e:4x4")).slices
    assert only.state is State.DOWN
    assert [host.state for host in only.hosts] == [State.READY, State.READY, State.DOWN, State.READY]


def test_a_service_that_has_just_been_made_is_starting_and_not_down():
    drawn = draw([pod(names.HEAD_JOB, 0, phase="Pending", ready=False)], service=made(started=False))
    assert (drawn.head, drawn.state) == (State.STARTING, State.STARTING)
    assert drawn.problem == "its resource manager is not ready (Pending)"
    assert {each.state for each in drawn.slices} == {State.STARTING}


def test_a_new_pod_counts_and_not_the_one_that_it_replaces():
    old = pod("worker", 1, deleted=True, name="old")
    new = pod("worker", 1, name="new", created="2026-01-01T00:05:00Z")
    for order in ([old, new], [new, old]):
        drawn = draw([pod(names.HEAD_JOB, 0), pod("worker", 0), *order])
        assert drawn.slices[1].hosts[0].pod == "new"


def test_a_proxy_whose_log_names_its_slices_is_drawn_on_them():
    job = a_proxy("s1")
    placements = {proxy_pod(job)["metadata"]["name"]: Placement({0: f"{SERVICE}-worker-1"})}
    drawn = draw([*cluster_pods(), proxy_pod(job)], [job], placements)
    assert drawn.slices[0].held_by is None
    holder = drawn.slices[1].held_by
    assert (holder.session, holder.user, holder.notebook, holder.waiting) == ("s1", "jane", "work/train.ipynb", False)
    assert holder.instances == {"tpuv6e:2x2": 1}
    assert (drawn.free, drawn.certain) == (1, True)
    assert str(holder) == "jane (train.ipynb)"


def test_a_slice_that_its_proxy_has_lost_is_down_until_the_proxy_has_it_again():
    job, placement = a_proxy("s1"), Placement()
    for said in ("unplaced -> placed on", "placed -> unplaced from"):
        placement.feed(f"Transition slice 0 (tpuv6e:2x2) {said} {SERVICE}-worker-1: heartbeat lost")
    again = pod("worker", 1, phase="Pending", ready=False)
    for pods in (cluster_pods(), [*cluster_pods()[:2], again]):
        drawn = draw([*pods, proxy_pod(job)], [job], {proxy_pod(job)["metadata"]["name"]: placement})
        lost = drawn.slices[1]
        assert (lost.state, lost.held_by.session, drawn.availability(lost)) == (State.DOWN, "s1", "down")
        assert (drawn.state, drawn.free) == (State.READY, 1)
    placement.feed(f"Transition slice 0 (tpuv6e:2x2) unplaced -> placed on {SERVICE}-worker-1")
    healed = draw([*cluster_pods(), proxy_pod(job)], [job], {proxy_pod(job)["metadata"]["name"]: placement})
    assert healed.availability(healed.slices[1]) == "in use"


def test_a_lost_slice_that_another_session_has_got_is_that_ones():
    jobs = [a_proxy("s1"), a_proxy("s2")]
    read = [Placement(lost={0: f"{SERVICE}-worker-1"}), Placement({0: f"{SERVICE}-worker-1"})]
    placements = {proxy_pod(job)["metadata"]["name"]: each for job, each in zip(jobs, read, strict=True)}
    drawn = draw([*cluster_pods(), *map(proxy_pod, jobs)], jobs, placements)
    assert (drawn.slices[1].state, drawn.slices[1].held_by.session) == (State.READY, "s2")


def test_a_slice_whose_worker_starts_again_is_down_for_its_holder_and_starting_for_no_one():
    job = a_proxy("s1")
    pods = [*cluster_pods()[:2], pod("worker", 1, phase="Pending", ready=False)]
    assert draw(pods).slices[1].state is State.STARTING
    held = {proxy_pod(job)["metadata"]["name"]: Placement({0: f"{SERVICE}-worker-1"})}
    assert draw([*pods, proxy_pod(job)], [job], held).slices[1].state is State.DOWN


def test_a_proxy_whose_log_does_not_name_its_slices_is_a_holder_of_so_many():
    job = a_proxy("s1")
    for placements in ({proxy_pod(job)["metadata"]["name"]: Placement({0: ""})}, None):
        drawn = draw([*cluster_pods(), proxy_pod(job)], [job], placements)
        assert [each.held_by for each in drawn.slices] == [None, None]
        assert not drawn.certain
        assert drawn.free == 1
        assert len(drawn.holders) == 1


def test_a_proxy_that_has_fewer_than_it_asked_for_is_waiting():
    job = a_proxy("s1", instances={"tpuv6e:2x2": 2})
    placements = {proxy_pod(job)["metadata"]["name"]: Placement({1: f"{SERVICE}-worker-0"})}
    drawn = draw([*cluster_pods(), proxy_pod(job)], [job], placements)
    assert (drawn.holders[0].waiting, drawn.holders[0].placed) == (True, 1)
    assert drawn.free == 1


def test_holders_stand_in_the_order_in_which_they_came():
    late, early = a_proxy("late", created="2026-01-01T12:00:00Z"), a_proxy("early", created="2026-01-01T08:00:00Z")
    assert [each.session for each in draw(cluster_pods(), [late, early]).holders] == ["early", "late"]


def test_a_holder_has_a_deadline_once_its_job_has_begun():
    began = {"status": {"startTime": "1970-01-01T01:00:00Z"}}
    jobs = [a_proxy("waits"), a_proxy("runs", **began), a_proxy("for-ever", **began)]
    for job in jobs[:2]:
        job["spec"]["activeDeadlineSeconds"] = 60
    until = {each.session: each.until for each in draw(cluster_pods(), jobs).holders}
    assert until == {"waits": 0, "runs": 3660, "for-ever": 0}


def test_ended_deleted_and_foreign_jobs_hold_nothing():
    ended = a_proxy("a", status={"conditions": [{"type": "Failed", "status": "True"}]})
    going = a_proxy("b", metadata={"deletionTimestamp": "2026-01-01T00:00:01Z"})
    other = a_proxy("c")
    other["spec"]["template"]["spec"]["containers"][0]["args"] = [
        "--resource_manager_address=x-pathways-head-0-0.x:29001"
    ]
    unrelated = {"metadata": {"name": "job"}, "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}}}
    assert draw(cluster_pods(), [ended, going, other, unrelated]).holders == ()


def test_a_proxy_made_by_other_tools_is_a_holder_too():
    job = a_proxy("x")
    job["metadata"] |= {"name": "isc-proxy-joe-abc12", "labels": {}, "annotations": {}}
    (holder,) = draw(cluster_pods(), [job]).holders
    assert (holder.session, holder.user, str(holder)) == ("", "", "isc-proxy-joe-abc12")


def test_a_proxy_that_follows_another_under_the_same_job_does_not_show_its_slices():
    job = a_proxy("s1")
    before, after = proxy_pod(job), proxy_pod(job)
    before["metadata"] |= {"creationTimestamp": "2026-01-01T10:00:00Z", "deletionTimestamp": "2026-01-01T11:00:00Z"}
    after["metadata"] |= {"name": f"{job['metadata']['name']}-abc34", "creationTimestamp": "2026-01-01T11:00:01Z"}
    placements = {before["metadata"]["name"]: Placement({0: f"{SERVICE}-worker-1"})}
    for pods in ([before, after], [after, before]):
        drawn = draw([*cluster_pods(), *pods], [job], placements)
        assert drawn.holders[0].pod == after["metadata"]["name"]
        assert (drawn.certain, drawn.holders[0].placed, drawn.slices[1].held_by) == (False, None, None)


def test_a_service_with_one_slice_is_described_in_the_singular():
    drawn = draw([pod(names.HEAD_JOB, 0)], service=made(1))
    assert str(status.capacity_error(drawn, {"tpuv6e:2x2": 1})).startswith("0 of 1 slice of pathways-cluster is ready")


def test_a_capacity_error_says_who_holds_what_since_when(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1767267000.0)
    jobs = [a_proxy("s1"), a_proxy("s2", user="joe", created="2026-01-01T07:00:00Z")]
    placements = {
        proxy_pod(job)["metadata"]["name"]: Placement({0: f"{SERVICE}-worker-{index}"})
        for index, job in enumerate(jobs)
    }
    drawn = draw([*cluster_pods(), *map(proxy_pod, jobs)], jobs, placements)
    error = status.capacity_error(drawn, {"tpuv6e:2x2": 1})
    assert str(error) == (
        "0 of 2 slices of pathways-cluster are free, and 1 is wanted: "
        "joe (train.ipynb) holds 1 for 4 h 30 min; jane (train.ipynb) holds 1 for 1 h 30 min."
    )
    assert "--wait" in error.hint
    assert status.capacity_error(drawn, {"tpuv6e:2x2": 1}, waited=3.2).hint.startswith("Waited 3 s for them. --wait")


def test_a_capacity_error_names_slices_that_are_down():
    pods = [each for each in cluster_pods() if each["metadata"]["labels"].get(names.JOB_INDEX_LABEL) != "1"]
    jobs = [a_proxy("s1")]
    placements = {proxy_pod(jobs[0])["metadata"]["name"]: Placement({0: f"{SERVICE}-worker-0"})}
    drawn = draw([*pods, proxy_pod(jobs[0])], jobs, placements)
    assert str(status.capacity_error(drawn, {"tpuv6e:2x2": 1})).endswith("; slice 1 is down.")


def test_a_thousand_slices_are_drawn_from_one_pass_over_the_pods():
    pods = cluster_pods(1000, 4)
    drawn = draw(pods, service=made(1000, "tpuv6e:4x4"))
    assert len(drawn.slices) == 1000
    assert all(each.state is State.READY for each in drawn.slices)


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        *(
            (each, State.DOWN)
            for each in ("ErrImagePull", "ErrImageNeverPull", "CrashLoopBackOff", "RunContainerError")
        ),
        ("ContainerCreating", State.STARTING),
    ],
)
def test_a_pod_that_will_not_start_by_waiting_is_down_and_says_why(reason, state):
    waiting = {"waiting": {"reason": reason, "message": "no such tag"}}
    waits = pod("worker", 0, phase="Pending", ready=False, containerStatuses=[{"name": "w", "state": waiting}])
    assert pod_state(waits) == (state, reason)


def test_many_proxies_of_one_user_do_not_hide_the_slices():
    many = [a_proxy(f"s{number}") for number in range(500)]
    shown = slices.view([draw(cluster_pods(), many)])
    assert len(shown.text.splitlines()) < 30
    assert "and 480 more" in shown.text
    assert len(shown.value[0].holders) == 500


@pytest.mark.parametrize("ahead", [3 * 3600, -3 * 3600])
async def test_ages_are_those_of_the_clusters_clock(bench, monkeypatch, ahead):
    real = time.time
    async with bench.client() as client:
        spec = service_jobset.ServiceSpec(tpu.parse_instance_type("tpuv6e:2x2"), 1, "r/server:1", name=SERVICE)
        await objects.create(client, objects.JOBSETS, service_jobset.manifest(spec), namespace="default")
        # Only here: the API server runs in this process too.
        monkeypatch.setattr("pathways_jupyter.kube.client.time", SimpleNamespace(time=lambda: real() + ahead))
        (overview,) = await status.overviews(client, "default")
        (service,) = await status.fetch(client, "default", logs=False)
        assert overview.clock_ahead == service.clock_ahead == pytest.approx(ahead, abs=2)
    holder = Holder("s", "jane", "", real() - 600, {"tpuv6e:2x2": 1}, False, 1, "job", "pod")
    held = dataclasses.replace(service.slices[0], held_by=holder)
    monkeypatch.setattr(time, "time", lambda: real() + ahead)
    of_her = dataclasses.replace(service, slices=(held,), holders=(holder,))
    assert re.search(r"\b10 min", slices.view([of_her]).text)
    assert not re.search(r"\d h|\d min", services.view([overview]).text)
    assert "for 10 min" in str(status.capacity_error(of_her, {"tpuv6e:2x2": 1}))


def test_only_slices_whose_pods_have_changed_are_computed_again():
    pods, cache = PodIndex(cluster_pods()), {}
    first = derive(made(), pods=pods, jobs=(), cache=cache)
    again = derive(made(), pods=pods, jobs=(), cache=cache)
    assert again == first
    assert all(one is other for one, other in zip(first.slices, again.slices, strict=True))
    pods.put(pod("worker", 1, ready=False))
    changed = derive(made(), pods=pods, jobs=(), cache=cache)
    assert changed.slices[0] is first.slices[0]
    assert changed.slices[1].state is State.STARTING
    assert changed == derive(made(), pods=pods, jobs=())
