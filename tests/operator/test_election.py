"""Elections in one process, each with a client of its own; the tests of the program are in test_leadership."""

import asyncio
import contextlib

import pytest
from program_log import Log

from pathways_jupyter.base.text import stamp
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import LEASES
from pathways_jupyter.operator.election import Election
from pathways_jupyter.service import names

DEADLINE = 60.0


class Candidate:
    """An operator that says who leads."""

    def __init__(self, client, name, *, seconds=3.0):
        self.log = Log()
        self.leads, self.stopped = asyncio.Event(), asyncio.Event()
        self._election = Election(client, "default", me=name, say=self.log.write, seconds=seconds)
        self.task = asyncio.create_task(self._election.run(self._lead))

    async def _lead(self):
        self.leads.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.leads.clear()
            self.stopped.set()

    async def until_leading(self):
        async with asyncio.timeout(DEADLINE):
            await self.leads.wait()

    async def until_stopped(self):
        async with asyncio.timeout(DEADLINE):
            await self.stopped.wait()

    async def end(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@contextlib.asynccontextmanager
async def candidates(bench, *known, **options):
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(bench.client(name=name)) for name in known]
        made = [Candidate(client, name, **options) for client, name in zip(clients, known, strict=True)]
        try:
            yield made
        finally:
            for each in made:
                await each.end()


async def holder(client):
    lease = await objects.get(client, LEASES, names.OPERATOR_LEASE, namespace="default")
    return lease["spec"]["holderIdentity"]


async def test_one_leads_at_a_time_and_hands_over_when_it_ends(bench):
    # A minute: only a Lease that was released is free before the deadline.
    async with bench.client() as client, candidates(bench, "one", seconds=60.0) as (one,):
        await one.until_leading()
        assert await holder(client) == "one"
        await one.end()
        assert not one.leads.is_set()
        assert await holder(client) == ""
        async with candidates(bench, "two", seconds=60.0) as (two,):
            await two.until_leading()
            assert await holder(client) == "two"


async def test_a_leader_that_cannot_renew_stops_before_another_one_may_begin(bench):
    async with candidates(bench, "one") as (one,):
        await one.until_leading()
        await bench.server.stop()
        await one.until_stopped()
        assert "no longer leading: the lease could not be renewed" in one.log[1]
        await bench.server.start()
        await one.until_leading()


async def test_a_leader_whose_lease_was_taken_stops(bench):
    async with bench.client() as client, candidates(bench, "one") as (one,):
        await one.until_leading()
        body = {
            "spec": {
                "holderIdentity": "other",
                "renewTime": stamp(client.now(), micro=True),
                "leaseDurationSeconds": 600,
            }
        }
        await objects.patch(client, LEASES, names.OPERATOR_LEASE, body, namespace="default")
        await one.log.until("another operator has become the leader")
        await one.until_stopped()
        await one.log.until("waiting: other is the leader")


@pytest.mark.parametrize(
    ("ahead", "seconds", "later"),
    [(365 * 24 * 3600, 15, 20), (0, 2**31 - 1, 3610)],
    ids=["renewed-in-the-future", "lasting-for-ever"],
)
async def test_a_lease_that_a_stranger_has_written_does_not_block_for_ever(bench, monkeypatch, ahead, seconds, later):
    async with bench.client() as client:
        at = stamp(client.now() + ahead, micro=True)
        spec = {"holderIdentity": "stranger", "leaseDurationSeconds": seconds, "renewTime": at}
        metadata = {"name": names.OPERATOR_LEASE, "namespace": "default"}
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        await objects.create(client, LEASES, lease)
        election, now = Election(client, "default", me="one", say=lambda text: None), client.now
        assert await election._try() == "stranger"
        monkeypatch.setattr(client, "now", lambda: now() + later)
        assert await election._try() == "one"
        assert await holder(client) == "one"
