"""One proxy in this process, on the embedded cluster: how it starts, how it is lost, and what its slices do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from session_records import listening, new_record
from waits import wait_until

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS
from pathways_jupyter.kube.watch import ChangeType, until_gone, watch
from pathways_jupyter.service import leases, names
from pathways_jupyter.session import protocol, registry, sweep
from pathways_jupyter.session.supervisor.own_proxy import OwnProxy
from pathways_jupyter.session.supervisor.proxy_slices import ProxySlices
from pathways_jupyter.session.supervisor.session_log import SessionLog
from pathways_jupyter.tunnel.portforward import Forward

DEADLINE = 60.0
LEASE = 5.0
"""Seconds; one who has to wait for a processor renews it in time, and learns within a quarter of it that it is gone."""
TYPE = "tpuv6e:2x2"


def new_log(asked: ConnectConfig) -> SessionLog:
    return SessionLog(new_record(config=protocol.config_to_json(asked), instances=asked.instances), asked)


def labels_of(job: objects.Object) -> str:
    return f"{names.SESSION_LABEL}={job['metadata']['labels'][names.SESSION_LABEL]}"


def reported(log: SessionLog, kind: EventKind) -> list[str]:
    return [event.message for event in log.history._events if event.kind is kind]


@pytest.fixture
async def client(cluster) -> AsyncIterator[Client]:
    async with Client(load(str(cluster.kubeconfig))) as made, asyncio.timeout(DEADLINE):
        yield made


@pytest.fixture
def proxies(client, config, gone) -> Callable[..., Any]:
    """Start a proxy for a session of its own, which is removed at the end."""

    @contextlib.asynccontextmanager
    async def started(slices: int = 1, **changes: Any) -> AsyncIterator[tuple[OwnProxy, SessionLog]]:
        log = new_log(config(slices, **changes))
        log.update(namespace="default")
        proxy = OwnProxy(client, log)
        try:
            async with listening(log.record):
                await proxy.start()
                yield proxy, log
        finally:
            await proxy.close()
            await sweep.remove(client, "default", log.record.id, job=proxy.job)
            registry.remove(log.record)
            await asyncio.to_thread(gone, log.record.id)

    return started


async def test_a_lease_that_is_deleted_ends_the_proxy(proxies, client):
    async with proxies(lease_seconds=LEASE) as (proxy, log):
        await objects.delete(client, LEASES, log.record.job, namespace="default")
        assert "Lease was deleted" in await proxy.lost()


async def test_a_lease_that_is_deleted_ends_the_wait_for_slices(proxies, client, hold):
    await asyncio.to_thread(hold, 2)

    async def connect() -> None:
        async with proxies(lease_seconds=LEASE, wait=DEADLINE):
            """Not reached: the slices stay taken."""

    before = {each["metadata"]["uid"] for each in (await objects.list_(client, LEASES, namespace="default")).items}
    connecting = asyncio.create_task(connect())
    changes = watch(client, LEASES, namespace="default", labels=names.SESSIONS)
    async with contextlib.aclosing(changes):
        async for change in changes:
            about = change.object.get("metadata") or {}
            if about and about["uid"] not in before and change.type is ChangeType.MODIFIED:
                # It was renewed, so it is in use.
                await objects.delete(client, LEASES, about["name"], namespace="default")
                break
    with pytest.raises(ServiceError, match=r"did not start.* Lease was deleted"):
        await connecting


async def test_a_job_that_is_deleted_without_its_pod_while_its_lease_is_made_does_not_start(
    proxies, client, monkeypatch
):
    create = leases.create

    async def late(of, job, **options):
        path = JOBS.item("default", job["metadata"]["name"])
        await client.delete(path, body={"propagationPolicy": "Orphan"})
        await until_gone(client, JOBS, namespace="default", labels=labels_of(job))
        made = await create(of, job, **options)
        # Its owner has gone, so the cluster removes it.
        await until_gone(client, LEASES, namespace="default", labels=labels_of(job))
        return made

    monkeypatch.setattr(leases, "create", late)
    with pytest.raises(ServiceError, match="Lease or its Job was deleted"):
        async with proxies():
            pass


async def test_a_pod_that_is_deleted_when_the_tunnel_opens_is_the_reason(proxies, client, monkeypatch):
    prepare = Forward.prepare

    async def late(self):
        for pod in (await objects.list_(client, PODS, namespace="default", labels=names.SESSIONS)).items:
            await objects.delete(client, PODS, pod["metadata"]["name"], namespace="default", grace_seconds=0)
        await prepare(self)

    monkeypatch.setattr(Forward, "prepare", late)
    with pytest.raises(ServiceError, match=r"ended before it could be used\. Pod .* deleted") as failed:
        async with proxies():
            pass
    assert "all slices are taken" not in failed.value.hint


@pytest.fixture
def choosing(client, config) -> Callable[..., Any]:
    """The slices that a session would have, and its log."""

    def made(slices: int, **changes: Any) -> tuple[ProxySlices, SessionLog]:
        log = new_log(config(slices, **changes))
        return ProxySlices(client, log, lambda *_, **__: None), log

    return made


async def test_fewer_are_taken_where_that_was_allowed(choosing, hold):
    await asyncio.to_thread(hold, 1)
    slices, log = choosing(2, at_least=1)
    await slices.choose(*await slices.look("default"))
    assert slices.instances == {TYPE: 1}
    assert log.record.instances == {TYPE: 1}
    (warning,) = reported(log, EventKind.WARNING)
    assert "Taking 1 of 2 slices" in warning


async def test_a_session_that_took_fewer_is_not_said_to_have_fewer_once_it_has_all(choosing, hold, client):
    holder = await asyncio.to_thread(hold, 1)
    slices, log = choosing(2, at_least=1)
    await slices.choose(*await slices.look("default"))
    assert log.record.instances == {TYPE: 1}
    assert await asyncio.to_thread(lambda: holder.close(patience=DEADLINE))
    while log.record.instances != {TYPE: 2}:
        # As a reconnect does; the cluster takes a moment to free the slice.
        again = ProxySlices(client, log, lambda *_, **__: None)
        await again.choose(*await again.look("default"))
        assert log.record.instances == again.instances


async def test_one_that_joins_a_proxy_later_learns_its_slices_from_the_log(proxies, choosing, client):
    async with proxies() as (_, log):
        slices, joined = choosing(1)
        pod = await objects.find(client, PODS, log.record.pod, namespace="default")
        following = asyncio.create_task(slices.follow(pod, joined=True))
        await asyncio.to_thread(wait_until, lambda: joined.record.slices)
        assert joined.record.slices == log.record.slices
        assert len(reported(joined, EventKind.SLICE_PLACED)) == 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
