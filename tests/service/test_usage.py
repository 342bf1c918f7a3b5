"""Chip-hours from Jobs and Leases: what is counted, and what is said about the rest."""

import json
from datetime import UTC, datetime

import holders
import pytest

from pathways_jupyter.render import services
from pathways_jupyter.service import names
from pathways_jupyter.service.session_figures import SessionFigures
from pathways_jupyter.service.usage import NOT_RECORDED, fetch, usage

NOW = 1_800_000_000.0
HOUR = 3600.0


def stamp(at):
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def proxy(name, *, began, user="jane", slices=("tpuv6e:2x2",), ended=None, container=names.PROXY_CONTAINER):
    flags = [f"--virtual_slices={','.join(slices)}", "--resource_manager_address=h.svc:29001"]
    over = [{"type": "Failed", "status": "True", "lastTransitionTime": stamp(ended)}] if ended else []
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": stamp(began),
            "labels": {names.USER_LABEL: user, names.SESSION_LABEL: name} if user else {},
        },
        "spec": {"template": {"spec": {"containers": [{"name": container, "args": flags}]}}},
        "status": {"startTime": stamp(began), "conditions": over},
    }


def lease(name, *, state="connected", waited=0.0, reconnects=0, renewed=NOW):
    figures = SessionFigures(name, "jane", "default", "h.svc:29001", state, waited, reconnects)
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {names.FIGURES_ANNOTATION: figures.to_json()},
        },
        "spec": {"renewTime": stamp(renewed), "leaseDurationSeconds": 60},
    }


async def test_the_documented_verbs_are_enough(bench):
    kinds = [{"apiGroups": ["batch", "coordination.k8s.io"], "resources": ["jobs", "leases"], "verbs": ["list"]}]
    async with bench.client() as client, bench.client(name="reader", rules=kinds) as reader:
        made = await bench.proxy(client, "a1")
        (held,) = (await fetch(reader, "default", HOUR)).proxies
        assert held.job == made["metadata"]["name"]


def test_a_proxy_counts_its_chips_from_the_end_of_its_wait():
    found = usage([proxy("a", began=NOW - 2 * HOUR)], [lease("a", waited=HOUR)], since=NOW - 24 * HOUR, now=NOW)
    (held,) = found.proxies
    assert (held.chips, held.chip_hours, held.certain) == (4, 4.0, True)
    assert found.by_user() == {"jane": 4.0}


def test_a_proxy_in_a_queue_holds_nothing_and_the_queue_of_the_service_is_said():
    queued, held = proxy("a", began=NOW - HOUR), proxy("b", began=NOW - HOUR)
    queued["spec"]["suspend"] = True
    del queued["status"]["startTime"]
    held["metadata"]["labels"][names.CHIPS_QUEUE_LABEL] = "team"
    first, second = usage([queued, held], [lease("b")], since=NOW - 24 * HOUR, now=NOW).proxies
    assert (first.job, first.queue, first.chip_hours) == ("b", "team", 4.0)
    assert (second.job, second.waits, second.chip_hours) == ("a", True, 0.0)


def test_only_the_span_counts():
    jobs = [proxy("a", began=NOW - 10 * HOUR), proxy("old", began=NOW - 10 * HOUR, ended=NOW - 5 * HOUR)]
    found = usage(jobs, [lease("a")], since=NOW - HOUR, now=NOW)
    assert [(each.job, each.chip_hours) for each in found.proxies] == [("a", 4.0)]


def test_a_finished_job_that_is_still_there_counts_until_its_end():
    jobs = [proxy("a", began=NOW - 3 * HOUR, ended=NOW - HOUR)]
    (held,) = usage(jobs, [], since=NOW - 24 * HOUR, now=NOW).proxies
    assert (held.chip_hours, held.ended, held.certain) == (8.0, NOW - HOUR, False)


def test_a_proxy_that_waits_holds_nothing():
    jobs, leases = [proxy("a", began=NOW - HOUR)], [lease("a", state="waiting", waited=HOUR)]
    (held,) = usage(jobs, leases, since=NOW - 24 * HOUR, now=NOW).proxies
    assert (held.chip_hours, held.waits) == (0.0, True)


def test_what_may_contain_a_wait_is_marked():
    jobs = [
        proxy("again", began=NOW - HOUR),
        proxy("foreign", began=NOW - HOUR, user="", slices=("tpuv6e:2x2", "tpuv6e:2x2")),
        proxy("dead", began=NOW - HOUR),
    ]
    leases = [lease("again", reconnects=1, waited=HOUR), lease("dead", waited=60, renewed=NOW - HOUR)]
    found = usage(jobs, leases, since=NOW - 24 * HOUR, now=NOW)
    assert {each.job: each.certain for each in found.proxies} == {"again": False, "foreign": False, "dead": False}
    assert found.by_user() == {"foreign": 8.0, "jane": 8.0}
    shown = services.usage(found).text
    assert "~8.00" in shown
    assert "may be included" in shown
    assert NOT_RECORDED in shown


def test_other_jobs_and_unknown_types_are_not_guessed():
    jobs = [proxy("other", began=NOW - HOUR, container="main"), proxy("new", began=NOW - HOUR, slices=("tpu99:1x1",))]
    (held,) = usage(jobs, [], since=NOW - 24 * HOUR, now=NOW).proxies
    assert (held.job, held.chips, held.chip_hours) == ("new", None, None)
    assert "not known" in services.usage(usage(jobs, [], since=0, now=NOW)).text


def test_the_command_shows_who_holds_what_now(machine, cluster, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", machine.environ["JUPYTER_RUNTIME_DIR"])
    link = holders.hold(cluster)
    try:
        found = json.loads(machine.cli("usage", "--kubeconfig", str(cluster), "--json").stdout)
        (proxy,) = found["proxies"]
        assert (proxy["session"], proxy["chips"], proxy["certain"]) == (link.session, 4, True)
        assert 0 <= proxy["chip_hours"] < 1
        assert found["not_recorded"] == NOT_RECORDED
        shown = machine.cli("usage", "--kubeconfig", str(cluster), "--since", "1h", "-A").stdout
        assert link.session in shown
        assert "chip-hours" in shown
    finally:
        assert link.close(patience=holders.DEADLINE)
    assert "no proxies" in machine.cli("usage", "--kubeconfig", str(cluster)).stdout


def test_the_proxy_of_a_silent_session_is_shown_as_reclaimable():
    job, silent = proxy("a", began=NOW - HOUR), lease("a", renewed=NOW - 300)
    job["metadata"]["uid"] = "u"
    silent["metadata"]["annotations"][names.KEEP_ANNOTATION] = "900"
    silent["metadata"]["ownerReferences"] = [{"name": "a", "uid": "u"}]
    found = usage([job], [silent], since=NOW - 24 * HOUR, now=NOW)
    assert "reclaimable, silent for 5 min 00 s" in services.usage(found).text
    assert services.usage(found).value["proxies"][0]["reclaimable"] == {
        "silent_since": NOW - 300,
        "kept_until": NOW + 600,
    }


@pytest.mark.parametrize("waited", ["1" + "0" * 400, "1e999", "1e308", "-1e9", "NaN"])
def test_no_figure_hides_chip_hours_or_takes_the_table_from_all(waited):
    written = f'{{"waited": {waited}, "reconnects": 0, "service": "x", "state": "connected"}}'
    odd = lease("a")
    odd["metadata"]["annotations"][names.FIGURES_ANNOTATION] = written
    jobs = [proxy("a", began=NOW - HOUR), proxy("b", began=NOW - HOUR, user="john")]
    found = usage(jobs, [odd], since=NOW - 24 * HOUR, now=NOW)
    assert found.by_user() == {"jane": 4.0, "john": 4.0}
    assert "~4.00" in services.usage(found).text
    assert "1 Job or Lease cannot be read in full; pathways-jupyter doctor names them." in services.usage(found).text
    json.dumps(services.usage(found).value, allow_nan=False)


def test_a_wait_that_is_longer_than_the_proxy_has_been_there_is_not_believed():
    found = usage([proxy("a", began=NOW - HOUR)], [lease("a", waited=2 * HOUR)], since=NOW - 24 * HOUR, now=NOW)
    assert (found.proxies[0].chip_hours, found.proxies[0].certain) == (4.0, False)
