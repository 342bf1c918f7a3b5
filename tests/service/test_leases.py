import asyncio

import pytest
from permissions import documented_rules

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.base.text import stamp
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS
from pathways_jupyter.service import abandoned, leases, names
from pathways_jupyter.tunnel.relay.relay_container import RelaySpec

DEADLINE = 60.0
HOUR = 3600.0


def later(monkeypatch, client, seconds):
    """Move the client's clock; time is the only fake part here."""
    now = client.now
    monkeypatch.setattr(client, "now", lambda: now() + seconds)


async def leased(bench, client, session, *, seconds, keep=0.0, **options):
    """Create the proxy Job of a session, and its Lease; return the Job."""
    job = await bench.proxy(client, session, **options)
    await leases.create(client, job, seconds=seconds, keep=keep)
    return job


async def jobs(client):
    return {job["metadata"]["name"] for job in (await objects.list_(client, JOBS, namespace="default")).items}


async def test_a_lease_belongs_to_its_job_and_lasts_as_long_as_asked(bench, client):
    job = await bench.proxy(client, "s1")
    lease = await leases.create(client, job, seconds=2.5, holder="jane@laptop")
    assert lease["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert lease["metadata"]["labels"] == job["metadata"]["labels"]
    assert lease["spec"]["leaseDurationSeconds"] == 3
    renewed = leases.renewed(lease, client.now())
    assert not leases.is_stale(lease, renewed + 2)
    assert leases.is_stale(lease, renewed + 4)


async def test_renewing_keeps_a_lease_and_returns_whether_it_is_gone(bench, client, monkeypatch):
    job = await leased(bench, client, "s1", seconds=100)
    later(monkeypatch, client, 70)
    assert await leases.renew(client, job["metadata"]["name"], namespace="default")
    later(monkeypatch, client, 70)
    assert await abandoned.sweep(client, "default") == ()
    await objects.delete(client, LEASES, job["metadata"]["name"], namespace="default")
    assert not await leases.renew(client, job["metadata"]["name"], namespace="default")


async def test_only_expired_leases_are_swept(bench, client, monkeypatch):
    await leased(bench, client, "dead", seconds=10)
    live = await leased(bench, client, "live", seconds=HOUR)
    later(monkeypatch, client, 60)
    (swept,) = await abandoned.sweep(client, "default")
    assert (swept.session, swept.user, swept.error) == ("dead", "jane", "")
    assert "not renewed" in swept.reason
    assert await jobs(client) == {live["metadata"]["name"]}
    assert await abandoned.sweep(client, "default") == ()


async def test_a_dry_run_reports_and_deletes_nothing(bench, client, monkeypatch):
    job = await leased(bench, client, "s1", seconds=1, notebook="a.ipynb")
    later(monkeypatch, client, 60)
    for _ in range(2):
        (swept,) = await abandoned.sweep(client, "default", dry_run=True)
        assert (swept.job, swept.notebook) == (job["metadata"]["name"], "a.ipynb")
    assert await jobs(client) == {job["metadata"]["name"]}


async def test_a_job_without_a_lease_is_spared_while_its_session_may_still_be_making_one(bench, client, monkeypatch):
    await bench.proxy(client, "s1")
    assert await abandoned.sweep(client, "default") == ()
    later(monkeypatch, client, leases.DEFAULT_SECONDS + 5)
    (swept,) = await abandoned.sweep(client, "default")
    assert swept.reason == "it never got a lease"
    assert await jobs(client) == set()


async def test_what_is_not_ours_is_never_touched(client, monkeypatch):
    container = {"name": "main", "image": "x", "command": ["true"]}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    for name, labels in [
        ("plain", {}),
        ("other", {names.MANAGED_BY_LABEL: "helm", names.SESSION_LABEL: "s"}),
        ("service", {names.MANAGED_BY_LABEL: names.MANAGED_BY}),
    ]:
        metadata = {"name": name, "namespace": "default", "labels": labels}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        await objects.create(client, JOBS, body)
    later(monkeypatch, client, 24 * HOUR)
    assert await abandoned.sweep(client, "default") == ()
    assert await jobs(client) == {"plain", "other", "service"}


async def test_a_sweep_can_be_limited_to_a_user(bench, client, monkeypatch):
    for session, user in [("a", "jane"), ("b", "jane"), ("c", "joe")]:
        await leased(bench, client, session, seconds=1, user=user)
    later(monkeypatch, client, 60)
    assert {each.session for each in await abandoned.sweep(client, "default", user="jane")} == {"a", "b"}
    assert [each.session for each in await abandoned.sweep(client, "")] == ["c"]


@pytest.mark.parametrize("jump", [-120.0, -25 * HOUR, 24 * HOUR])
async def test_a_renewal_by_a_clock_that_was_set_counts_from_when_the_server_received_it(bench, client, jump):
    job = await leased(bench, client, "s1", seconds=60)
    await bench.renewed_at(client, job, client.now() + jump)
    assert await abandoned.sweep(client, "default", reclaim=abandoned.EVERY) == ()
    assert await jobs(client) == {job["metadata"]["name"]}


async def test_a_renewal_in_the_future_holds_a_lease_no_longer_than_one_of_now(bench, client, monkeypatch):
    job = await leased(bench, client, "s1", seconds=60)
    await bench.renewed_at(client, job, client.now() + 365 * 24 * HOUR)
    later(monkeypatch, client, 120)
    assert [each.session for each in await abandoned.sweep(client, "default")] == ["s1"]


def test_a_lease_whose_author_also_forged_what_the_server_notes_has_never_been_renewed():
    future = stamp(2e9, micro=True)
    metadata = {"creationTimestamp": future, "managedFields": [{"time": future}]}
    lease = {"metadata": metadata, "spec": {"renewTime": future, "acquireTime": future}}
    assert leases.is_stale(lease, 1.9e9)
    assert leases.renewed({**lease, "spec": {**lease["spec"], "acquireTime": stamp(1.8e9, micro=True)}}, 1.9e9) == 1.8e9


async def test_any_number_may_sweep_at_once_and_each_job_is_reported_once(bench, client, monkeypatch):
    for index in range(10):
        await leased(bench, client, f"s{index}", seconds=1)
    later(monkeypatch, client, 60)
    swept = [
        each for many in await asyncio.gather(*(abandoned.sweep(client, "default") for _ in range(5))) for each in many
    ]
    assert sorted(each.session for each in swept) == [f"s{index}" for index in range(10)]
    assert all(not each.error for each in swept)
    assert await jobs(client) == set()


async def test_a_renewal_in_the_last_moment_saves_the_job(bench, client, monkeypatch):
    """The lease is renewed after it was read, and before it is deleted."""
    job = await leased(bench, client, "s1", seconds=1)
    later(monkeypatch, client, 60)
    delete = objects.delete

    async def renew_first(*arguments, **options):
        if arguments[1] is LEASES:
            assert await leases.renew(client, job["metadata"]["name"], namespace="default")
        return await delete(*arguments, **options)

    monkeypatch.setattr(objects, "delete", renew_first)
    assert await abandoned.sweep(client, "default") == ()
    assert await jobs(client) == {job["metadata"]["name"]}


async def test_a_new_job_of_the_same_name_is_not_taken_for_the_old_one(bench, client, monkeypatch):
    name = (await leased(bench, client, "s1", seconds=1))["metadata"]["name"]
    later(monkeypatch, client, 60)
    delete = objects.delete

    async def replace_first(*arguments, **options):
        if arguments[1] is JOBS:
            await delete(client, JOBS, name, namespace="default")
            await bench.proxy(client, "s1")
        return await delete(*arguments, **options)

    monkeypatch.setattr(objects, "delete", replace_first)
    assert await abandoned.sweep(client, "default") == ()
    assert await jobs(client) == {name}


async def test_a_lease_of_an_earlier_job_of_that_name_does_not_count(bench, client, monkeypatch):
    old = await leased(bench, client, "s1", seconds=1)
    await objects.delete(client, JOBS, old["metadata"]["name"], namespace="default")
    new = await bench.proxy(client, "s1")
    later(monkeypatch, client, 30)
    assert await abandoned.sweep(client, "default") == ()
    assert await jobs(client) == {new["metadata"]["name"]}


async def test_what_may_not_be_deleted_is_reported_and_does_not_stop_the_others(bench, client, monkeypatch):
    for session in ("a", "b"):
        await leased(bench, client, session, seconds=1)
    doomed = (await bench.proxy(client, "c"))["metadata"]["name"]
    rules = [
        {"apiGroups": ["*"], "resources": ["jobs", "leases"], "verbs": ["list"]},
        {"apiGroups": ["*"], "resources": ["jobs", "leases"], "verbs": ["delete"], "resourceNames": [doomed]},
    ]
    async with bench.client(rules=rules, name="weak") as weak:
        later(monkeypatch, weak, 2 * HOUR)
        swept = {each.session: each.error for each in await abandoned.sweep(weak, "default")}
    assert swept["c"] == ""
    assert "not allowed to delete leases" in swept["a"]
    assert len(await jobs(client)) == 2


async def test_a_sweep_that_may_not_look_is_reported(bench):
    async with bench.client(rules=[], name="blind") as client:
        with pytest.raises(ApiError, match="not allowed to list jobs"):
            await abandoned.sweep(client, "default")


async def test_a_silent_proxy_with_a_relay_is_kept_until_its_slices_are_needed(bench, client, monkeypatch):
    await leased(bench, client, "first", seconds=10, keep=900)
    later(monkeypatch, client, 20)
    second = await leased(bench, client, "second", seconds=10, keep=900)
    later(monkeypatch, client, 60)
    assert await abandoned.sweep(client, "default") == ()
    assert await abandoned.sweep(client, "default", reclaim=1, service="another") == ()
    # The one that has been silent for longest goes first.
    (taken,) = await abandoned.sweep(client, "default", reclaim=1)
    assert (taken.session, taken.kept) == ("first", True)
    assert 70 < taken.silent < 200
    assert await jobs(client) == {second["metadata"]["name"]}


async def test_a_silent_proxy_with_a_relay_is_not_kept_for_longer_than_it_asked_for(bench, client, monkeypatch):
    lease = await leases.create(client, await bench.proxy(client, "s1"), seconds=10, keep=900)
    assert leases.kept_until(lease, client.now()) - leases.end(lease, client.now()) == 890
    later(monkeypatch, client, 960)
    (swept,) = await abandoned.sweep(client, "default")
    assert (swept.session, swept.kept) == ("s1", False)
    assert await jobs(client) == set()


async def test_a_session_that_comes_back_in_time_keeps_its_proxy(bench, client, monkeypatch):
    job = await leased(bench, client, "s1", seconds=10, keep=900)
    later(monkeypatch, client, 600)
    assert await leases.renew(client, job["metadata"]["name"], namespace="default")
    assert await abandoned.sweep(client, "default", reclaim=abandoned.EVERY) == ()


async def test_a_silent_proxy_with_a_relay_is_reclaimable_until_its_session_is_back(bench, client, monkeypatch):
    kept = await leased(bench, client, "kept", seconds=10, keep=900, relay=RelaySpec("00" * 32))
    await leased(bench, client, "plain", seconds=10)
    assert await leases.fetch_reclaimable(client, "default") == {}
    later(monkeypatch, client, 60)
    found = await leases.fetch_reclaimable(client, "default")
    assert list(found) == [kept["metadata"]["uid"]]
    (silence,) = found.values()
    assert silence.kept_until - silence.silent_since == 900
    await leases.renew(client, kept["metadata"]["name"], namespace="default")
    assert await leases.fetch_reclaimable(client, "default") == {}


async def test_without_the_permission_to_list_leases_no_proxy_is_known_to_be_reclaimable(bench, client):
    await bench.proxy(client, "s1", relay=RelaySpec("00" * 32))
    async with bench.client(rules=[], name="blind") as blind:
        assert await leases.fetch_reclaimable(blind, "default") == {}


async def test_a_watch_of_leases_notices_silence_and_return(bench, client):
    job = await leased(bench, client, "s1", seconds=1, keep=900, relay=RelaySpec("00" * 32))
    name, changed = job["metadata"]["name"], asyncio.Event()
    watch = leases.LeaseWatch(changed.set)
    running = asyncio.create_task(watch.run(client, "default"))
    watch.follow([job])
    async with asyncio.timeout(DEADLINE):
        await changed.wait()
        assert list(watch.reclaimable) == [job["metadata"]["uid"]]
        changed.clear()
        change = {"spec": {"leaseDurationSeconds": 3600, "renewTime": stamp(client.now(), micro=True)}}
        await objects.patch(client, LEASES, name, change, namespace="default")
        # Another proxy makes it look again at once.
        watch.follow([job, await bench.proxy(client, "s2", relay=RelaySpec("00" * 32))])
        await changed.wait()
    assert watch.reclaimable == {}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def orphan(bench, client, session, *, uid=""):
    """The pod of a proxy that has lost its Job; `uid` is that of the Job."""
    labels = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.SESSION_LABEL: session,
        names.USER_LABEL: "jane",
        names.JOB_NAME_LABEL: f"pathways-proxy-jane-{session}",
        names.JOB_UID_LABEL: uid or "gone",
    }
    metadata = {"name": f"pathways-proxy-jane-{session}-x1y2z", "labels": labels}
    manifest = {"metadata": metadata, "spec": {"containers": [{"name": names.PROXY_CONTAINER}]}}
    return await bench.running(client, manifest, "sleep", "600", terminationGracePeriodSeconds=0)


async def pods(client):
    return {each["metadata"]["name"] for each in (await objects.list_(client, PODS, namespace="default")).items}


async def test_a_proxys_pod_without_its_job_is_swept_once_its_lease_has_expired(bench, client, monkeypatch):
    pod = await orphan(bench, client, "s1", uid="u1")
    name = "pathways-proxy-jane-s1"
    # The garbage collector removes the owner from pod and Lease one after the other.
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u1"}
    lease = {"metadata": {"name": name, "labels": pod["metadata"]["labels"], "ownerReferences": [owner]}}
    lease |= {"spec": {"leaseDurationSeconds": 10, "renewTime": stamp(client.now(), micro=True)}}
    lease |= {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
    await objects.create(client, LEASES, lease, namespace="default")
    assert await abandoned.sweep(client, "default", dry_run=True) == ()
    change = {"metadata": {"ownerReferences": None}}
    await objects.patch(client, LEASES, name, change, namespace="default")
    assert await abandoned.sweep(client, "default", dry_run=True) == ()
    later(monkeypatch, client, 60)
    (swept,) = await abandoned.sweep(client, "default")
    assert (swept.kind, swept.job, swept.user, swept.error) == ("Pod", pod["metadata"]["name"], "jane", "")
    assert swept.reason == "its Job was deleted without it, and its lease of 10 s was not renewed"
    assert (await objects.list_(client, LEASES, namespace="default")).items == ()
    await bench.until(client, pod["metadata"]["name"], lambda found: found is None)


async def test_a_proxys_pod_without_job_and_lease_is_swept_at_once_and_what_is_refused_is_said(bench, client):
    pod = await orphan(bench, client, "s1")
    # Neither are pods of other programs, nor those that have an owner.
    await bench.pod(client, "other", "sleep", "600", labels={names.JOB_NAME_LABEL: "other"})
    async with bench.client(rules=documented_rules(), name="user") as user:
        (swept,) = await abandoned.sweep(user, "default")
    assert "You are not allowed to delete pods" in swept.error
    assert "Where an operator runs, it deletes the pod" in swept.error
    (swept,) = await abandoned.sweep(client, "default")
    assert (swept.reason, swept.error) == ("its Job was deleted without it", "")
    await bench.until(client, pod["metadata"]["name"], lambda found: found is None)
    assert await pods(client) == {"other"}
