"""The rows of slice map and sidebar."""

from dataclasses import replace

import foreign_jobsets
import pathways_jobs

from pathways_jupyter.service import tables
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.model import Holder, Reclaimable, Service, Slice, SliceHost
from pathways_jupyter.service.pathwaysjob import description
from pathways_jupyter.service.podstate import State

INFO = ServiceInfo("svc", "ns", "svc:29001", "tpuv6e:4x4", 2, 4, "r/server:jax-1", started=True)


def holder(user="jane"):
    return Holder("s1", user, "a.ipynb", 5.0, {"tpuv6e:4x4": 1}, False, 1, "job", "pod")


def hosts(state):
    return tuple(SliceHost(index, state, f"w-{index}", "n", "") for index in range(4))


def service(held=None, state=State.READY):
    slices = (Slice(0, State.READY, hosts(State.READY), "w-0", held), Slice(1, state, hosts(state), "w-1", None))
    return Service("svc", "ns", "svc:29001", "tpuv6e:4x4", State.READY, slices, (held,) if held else (), True)


def drawn(made, **options):
    return tables.tables([(INFO, made)], heads={"svc": "head"}, me="jane", jobs=(), **options)


def test_a_slice_says_what_is_mine():
    rows = drawn(service(holder()))["slices"]
    assert rows["ns/svc/0"]["holder"]["mine"] is True
    assert rows["ns/svc/1"]["holder"] is None
    assert drawn(service(holder("joe")))["slices"]["ns/svc/0"]["holder"]["mine"] is False


def test_a_slice_is_free_only_when_it_is_ready_and_known_to_be_held_by_no_one():
    def words(made):
        return [row["availability"] for row in drawn(made)["slices"].values()]

    assert words(service(holder())) == ["in use", "free"]
    assert words(service(replace(holder(), reclaimable=Reclaimable(7.0, 900.0)))) == ["reclaimable", "free"]
    assert words(service(state=State.STARTING)) == ["free", "starting"]
    assert words(service(state=State.DOWN)) == ["free", "down"]
    assert words(replace(service(), certain=False)) == ["ready", "ready"]


def test_a_row_that_is_kept_is_made_again_when_its_holder_becomes_known():
    cache = {}
    drawn(replace(service(), certain=False), cache=cache)
    assert drawn(service(), cache=cache)["slices"]["ns/svc/0"]["availability"] == "free"


def test_a_service_without_a_ready_slice_is_not_ready_and_says_why():
    pending = tuple(SliceHost(index, State.STARTING, f"w-{index}", "", "Unschedulable") for index in range(4))
    unusable = tuple(Slice(index, State.STARTING, pending, f"w-{index}") for index in range(500))
    now = drawn(replace(service(), slices=unusable))
    assert now["slices"]["ns/svc/0"]["remarks"] == ["Unschedulable"]
    (row,) = now["services"].values()
    assert (row["health"], row["reason"]) == ("starting", "0 of 500 slices ready (Unschedulable)")
    assert [(each["ready"], each["free"]) for each in row["capacity"]] == [(0, 0)]
    (row,) = drawn(service(state=State.DOWN))["services"].values()
    assert (row["health"], row["reason"]) == ("ready", "")


def test_each_host_has_its_chips():
    assert [host["chips"] for host in drawn(service())["slices"]["ns/svc/0"]["hosts"]] == [4, 4, 4, 4]


def test_a_proxy_that_has_lost_all_of_its_slices_is_down_and_not_starting():
    lost = replace(holder(), placed=0)
    both = service().slices
    made = replace(service(lost), slices=(both[0], replace(both[1], held_by=lost, state=State.DOWN)), holders=(lost,))
    (proxy,) = drawn(made)["proxies"].values()
    assert (proxy["health"], proxy["slices"]) == ("down", ["1"])
    (proxy,) = drawn(replace(made, slices=both))["proxies"].values()
    assert proxy["health"] == "starting"


def test_what_a_silent_session_holds_is_reclaimable_and_not_free():
    held = replace(holder(), reclaimable=Reclaimable(7.0, 900.0))
    rows, silence = drawn(service(held)), {"silent_since": 7.0, "kept_until": 900.0}
    assert rows["slices"]["ns/svc/0"]["holder"]["reclaimable"] == silence
    assert [row["reclaimable"] for row in rows["proxies"].values()] == [silence]
    (capacity,) = rows["services"]["ns/svc"]["capacity"]
    assert (capacity["free"], capacity["reclaimable"]) == (1, 1)
    assert drawn(service(holder()))["slices"]["ns/svc/0"]["holder"]["reclaimable"] is None


def test_only_changes_are_sent():
    before, now = drawn(service()), drawn(service(state=State.DOWN))
    put, drop = tables.differences(before, now)
    assert [row["id"] for row in put["slices"]] == ["ns/svc/1"]
    assert drop == {}
    put, drop = tables.differences(now, tables.EMPTY)
    assert put == {}
    assert sorted(drop["slices"]) == ["ns/svc/0", "ns/svc/1"]


def test_the_state_of_a_job_is_one_word():
    def state(*held, spec=None, **metadata):
        found = [{"type": kind, "status": "True"} for kind in held]
        job = {"kind": "JobSet", "metadata": {"name": "a", **metadata}, "spec": spec, "status": {"conditions": found}}
        return tables._job(job)["state"]

    assert state() == "Pending"
    assert state("StartupPolicyCompleted") == "Running"
    assert state("Completed") == "Completed"
    assert state("StartupPolicyCompleted", "Failed") == "Failed"
    assert state("StartupPolicyCompleted", deletionTimestamp="2026-01-01T00:00:00Z") == "Ending"


def test_a_job_has_the_state_that_it_has_in_the_list_of_jobs_while_a_queue_suspends_or_resumes_it():
    """The condition follows a change of the spec late: on a resume when the last part has been resumed."""
    started = {"type": "StartupPolicyCompleted", "status": "True"}
    for suspend, suspended in ((True, "False"), (False, "True")):
        jobset = foreign_jobsets.toolkit()
        jobset["spec"]["suspend"] = suspend
        jobset["status"] = {"conditions": [started, {"type": "Suspended", "status": suspended}]}
        row = tables._job(jobset)
        assert row["state"] == description.job_info(jobset).state == ("Suspended" if suspend else "Running")


def test_only_users_jobs_can_be_acted_on():
    def runnable(job, **metadata):
        return tables._job({**job, "metadata": {**job["metadata"], **metadata}})["runnable"]

    jobset, service = foreign_jobsets.toolkit(), foreign_jobsets.shared_service()
    assert runnable(pathways_jobs.headless())
    assert runnable(jobset)
    assert not runnable(jobset, ownerReferences=[{"kind": "PathwaysJob"}])
    assert not runnable(service)


def test_a_notebook_can_attach_to_headless_jobs_only():
    assert tables._job(pathways_jobs.headless("lab"))["headless"]
    assert not tables._job(pathways_jobs.training("train", "true"))["headless"]


def test_times_are_by_this_machines_clock_and_what_has_no_time_has_none():
    silent = replace(holder(), reclaimable=Reclaimable(10.0, 20.0), until=30.0)
    cache = {}
    drawn(service(silent), cache=cache)
    now = drawn(service(silent), cache=cache, clock_ahead=100)
    held, (proxy,) = now["slices"]["ns/svc/0"]["holder"], now["proxies"].values()
    assert (held["since"], held["reclaimable"]) == (105.0, {"silent_since": 110.0, "kept_until": 120.0})
    assert (proxy["since"], proxy["until"]) == (105.0, 130.0)
    (proxy,) = drawn(service(holder()), clock_ahead=100)["proxies"].values()
    assert proxy["until"] == 0
