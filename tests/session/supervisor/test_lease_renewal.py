"""A proxy's Lease: renewed in time, and what is said when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from session_records import new_record

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import LEASES
from pathways_jupyter.service import leases, names
from pathways_jupyter.session.supervisor import lease_keeper
from pathways_jupyter.session.supervisor.lease_keeper import LeaseKeeper
from pathways_jupyter.session.supervisor.session_log import SessionLog

DEADLINE = 60.0


@pytest.fixture
async def make(bench, runtime) -> AsyncIterator[Callable]:
    """Make the keeper of a new proxy's Lease, and a future of why that is gone."""
    admin = bench.client()

    async def made(*, seconds: float, keep: float = 0.0, client: Client | None = None):
        job = await bench.proxy(admin, "s1")
        await leases.create(admin, job, seconds=seconds)
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        log = SessionLog(new_record(namespace="default"), ConnectConfig(lease_seconds=seconds))
        return LeaseKeeper(client or admin, log, job["metadata"]["name"], gone.set_result, keep=keep), gone, job

    async with admin:
        yield made


async def test_it_is_renewed_with_the_sessions_figures_until_it_is_gone(make, bench):
    keeper, gone, job = await make(seconds=0.4)
    name = job["metadata"]["name"]

    def renewed(lease):
        return names.FIGURES_ANNOTATION in lease["metadata"].get("annotations", {})

    running = asyncio.create_task(keeper.run())
    async with asyncio.timeout(DEADLINE), bench.client() as client:
        await bench.until(client, name, renewed, LEASES)
        assert not gone.done()
        await objects.delete(client, LEASES, name, namespace="default")
        assert "Lease was deleted" in await gone
        await running


async def test_a_missing_permission_is_an_error_before_the_proxy_is_used(make, bench):
    client = bench.client(name="reader", rules=[{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}])
    keeper, _, _ = await make(seconds=10, client=client)
    with pytest.raises(ApiError, match="The proxy's Lease cannot be renewed") as refused:
        await keeper.check()
    assert refused.value.status == 403
    assert "removed, 10 s after it was made" in refused.value.hint


async def test_a_silence_begins_when_the_last_renewal_was_sent_and_not_when_it_was_answered(make, monkeypatch):
    now, renew = lease_keeper.boot_seconds(), leases.renew

    async def slowly(*arguments, **options):
        nonlocal now
        renewed = await renew(*arguments, **options)
        now += 8
        return renewed

    monkeypatch.setattr(lease_keeper, "boot_seconds", lambda: now)
    monkeypatch.setattr(leases, "renew", slowly)
    keeper, _, _ = await make(seconds=60)
    await keeper.check()
    now += 51
    assert keeper.explain("Lost.") == "Lost."
    now += 1.5
    assert "silent for 60 s" in keeper.explain("Lost.")
    now += 700
    assert "Connect with --lease-seconds 1200 " in keeper.explain("Lost.")


async def test_with_a_relay_only_a_silence_longer_than_the_arrays_are_kept_explains_it(make, monkeypatch):
    now = lease_keeper.boot_seconds()
    monkeypatch.setattr(lease_keeper, "boot_seconds", lambda: now)
    keeper, _, _ = await make(seconds=60, keep=7200)
    now += 7000
    assert keeper.explain("Lost.") == "Lost."
    now += 1000
    assert "Connect with --keep 8400 " in keeper.explain("Lost.")
