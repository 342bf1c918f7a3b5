"""Metrics of the operator: the whole cluster, and nothing that is out of date."""

import asyncio
import contextlib
import functools
import math

import aiohttp
import holders
import kubeconfigs
import portpicker
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import LEASES
from pathways_jupyter.operator import main, metrics_server
from pathways_jupyter.operator.job_controller import Reconciles
from pathways_jupyter.service import leases, names
from pathways_jupyter.service.names import current_user
from pathways_jupyter.service.session_figures import SessionFigures


@pytest.fixture
def session(machine, cluster, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", machine.environ["JUPYTER_RUNTIME_DIR"])
    link = holders.hold(cluster, lease_seconds=10)
    yield link.session
    assert link.close(patience=holders.DEADLINE)


async def scrape(url):
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        return samples(await answer.text())


def serving(client, say, is_ready=lambda: True):
    port, reconciles = portpicker.pick_unused_port(), Reconciles(2, 0.5)
    return metrics_server.serving(Informer(client), port, is_ready=is_ready, reconciles=reconciles, say=say)


def samples(text):
    found = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            found[each.name, *sorted(each.labels.items())] = each.value
    return found


def of(found, name, **labels):
    return [value for (kind, *rest), value in found.items() if kind == name and labels.items() <= dict(rest).items()]


async def test_services_and_sessions_of_the_cluster_are_served(cluster, session):
    said = []
    about = {"session": session, "user": current_user(), "namespace": "default"}
    async with (
        Client(auth.load(str(cluster))) as client,
        serving(client, said.append) as url,
    ):
        # Its figures come with each renewal of its Lease; those of the first one are from before it was connected.
        # Sessions of other tests may have to end yet.
        async for _ in (attempts := Backoff(0.1, 1.0, seconds=75)):
            found = await scrape(url)
            counts = sum(of(found, "pathways_sessions")), of(found, "pathways_slices_free", service="pathways-cluster")
            if (of(found, "pathways_session_chips", **about) == [4] and counts == (1, [1])) or attempts.is_over:
                break
    assert said == []
    assert of(found, "pathways_up") == [1]
    assert of(found, "pathways_slices", service="pathways-cluster", state="ready") == [2]
    assert of(found, "pathways_slices", service="pathways-cluster", state="down") == [0]
    assert of(found, "pathways_slices_free", service="pathways-cluster") == [1]
    assert of(found, "pathways_session_reconnects_total", **about) == [0]
    assert of(found, "pathways_session_slice_wait_seconds_total", **about) == [0]
    assert of(found, "pathways_session_chips", **about) == [4]
    assert of(found, "pathways_session_slice_losses_total", **about) == [0]
    assert len(of(found, "pathways_session_idle_seconds", **about)) == 1
    assert len(of(found, "pathways_session_tunnel_bytes_total", relay="no", **about)) == 2
    assert of(found, "pathways_operator_reconcile_seconds_count") == [2]
    assert sum(of(found, "pathways_operator_api_requests_total", method="GET", status="200")) > 0
    assert sum(of(found, "pathways_sessions")) == 1


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    "figures",
    [
        f'{{"waited": {HUGE}, "reconnects": 0, "service": "x", "state": "connected"}}',
        '{"waited": 1e999, "reconnects": 0, "service": "x", "state": "connected"}',
        '{"waited": 1, "reconnects": 0, "service": "x", "state": "<img src=x onerror=alert(1)>"}',
        f'{{"waited": 1, "reconnects": 0, "service": "x", "state": "connected", "sent": {HUGE}, "received": 1}}',
        "[" * 3000,
    ],
    ids=["400-digits", "infinite", "unknown-state", "bytes", "deep"],
)
async def test_what_one_user_writes_does_not_take_the_metrics_from_the_others(bench, figures):
    async with bench.client() as client:
        for session, written in (("good", good_figures("good")), ("bad", figures)):
            lease = await leases.create(client, await bench.proxy(client, session), seconds=3600)
            change = {"metadata": {"annotations": {names.FIGURES_ANNOTATION: written}}}
            await objects.patch(client, LEASES, lease["metadata"]["name"], change, namespace="default")
        async with serving(client, print) as url:
            found = await scrape(url)
    assert of(found, "pathways_session_slice_wait_seconds_total", session="good") == [3]
    assert {labels for kind, *rest in found if kind == "pathways_sessions" for labels in rest} == {
        ("state", "connected")
    }
    assert all(math.isfinite(value) for value in found.values())
    assert of(found, "pathways_odd_leases") == [0 if "sent" in figures else 1]


def good_figures(session):
    return SessionFigures(session, "jane", "default", "x", "connected", 3.0, 0).to_json()


async def test_scrapes_list_nothing_and_show_what_has_changed(bench, monkeypatch):
    monkeypatch.setattr(metrics_server, "FRESH_SECONDS", 0.0)
    asked = []
    bench.server.audit = lambda _, question: asked.append((question.verb, question.resource))
    async with bench.client() as client, bench.client() as other, serving(client, print) as url:
        assert of(await scrape(url), "pathways_up") == [1]
        listed = [each for each in asked if each[0] == "list"]
        assert sorted(listed) == [("list", kind) for kind in ("jobs", "jobsets", "leases", "pods")]
        job = await bench.proxy(other, "new")
        lease = await leases.create(other, job, seconds=3600)
        figures = {"metadata": {"annotations": {names.FIGURES_ANNOTATION: good_figures("new")}}}
        await objects.patch(other, LEASES, lease["metadata"]["name"], figures, namespace="default")
        async for _ in Backoff(0.05, 1.0, seconds=60):
            if of(await scrape(url), "pathways_session_slice_wait_seconds_total", session="new"):
                break
        await objects.delete(other, LEASES, lease["metadata"]["name"], namespace="default")
        async for _ in Backoff(0.05, 1.0, seconds=60):
            if not of(await scrape(url), "pathways_session_slice_wait_seconds_total", session="new"):
                break
        assert [each for each in asked if each[0] == "list"] == listed

        # A server that is away is no cluster without services.
        await bench.server.stop()
        async for _ in Backoff(0.05, 1.0, seconds=60):
            if of(await scrape(url), "pathways_up") == [0]:
                break
        await bench.server.start()
        async for _ in Backoff(0.05, 1.0, seconds=60):
            if of(await scrape(url), "pathways_up") == [1]:
                break


async def test_a_cluster_that_does_not_answer_leaves_one_metric(unreachable):
    said = []
    async with (
        Client(auth.load(unreachable)) as client,
        serving(client, said.append) as url,
    ):
        found = await scrape(url)
    assert of(found, "pathways_up") == [0]
    assert {kind for kind, *_ in found} == {
        "pathways_up",
        "pathways_operator_reconcile_seconds_count",
        "pathways_operator_reconcile_seconds_sum",
    }
    assert len(said) == 1


async def test_an_operator_is_ready_while_the_api_server_answers(bench, unreachable, options):
    async with contextlib.AsyncExitStack() as stack:
        for kubeconfig, status in ((bench.kubeconfig(), 200), (unreachable, 503)):
            client = await stack.enter_async_context(Client(auth.load(kubeconfig)))
            election = main.Operator(Informer(client), options).election
            leading, never = asyncio.Event(), asyncio.Event()

            async def lead(leading=leading, never=never):
                leading.set()
                await never.wait()

            taking_part = asyncio.create_task(election.run(lead))
            stack.callback(taking_part.cancel)
            if status == 200:
                await asyncio.wait_for(leading.wait(), 60)
            answers = functools.partial(getattr, election, "server_answers")
            url = await stack.enter_async_context(serving(client, print, answers))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            async with http.get(url.replace("/metrics", "/readyz")) as answer:
                assert answer.status == status
            async with http.get(url.replace("/metrics", "/healthz")) as answer:
                assert answer.status == 200


@pytest.fixture
def unreachable(tmp_path):
    return kubeconfigs.write(tmp_path / "unreachable", {"server": "https://127.0.0.1:1"}, {"token": "t"})


@pytest.mark.parametrize(
    "annotation",
    ["", "no json", "[]", '{"waited": "long"}', '{"waited": 1, "reconnects": [], "state": "", "service": ""}'],
)
def test_figures_that_are_none_are_left_out(annotation):
    lease = {
        "metadata": {"name": "x", "namespace": "default", "annotations": {names.FIGURES_ANNOTATION: annotation}},
        "spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 60},
    }
    assert SessionFigures.of_lease(lease, 1767225600.0) is None


async def test_figures_of_an_expired_lease_are_left_out(cluster, session):
    async with Client(auth.load(str(cluster))) as client:
        (lease,) = (await objects.list_(client, LEASES, labels=f"{names.SESSION_LABEL}={session}")).items
        figures = SessionFigures.of_lease(lease, client.now())
        assert figures is not None
        assert (figures.session, figures.namespace) == (session, "default")
        assert SessionFigures.of_lease(lease, client.now() + 3600) is None
