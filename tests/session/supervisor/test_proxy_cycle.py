"""The end of a session at an awkward moment, against the API server itself."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from session_records import listening, new_record

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError, CapacityError
from pathways_jupyter.base.events import Event, EventKind, SessionState
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES
from pathways_jupyter.session import protocol, registry
from pathways_jupyter.session.supervisor import proxy_cycle
from pathways_jupyter.session.supervisor.early_connections import EarlyConnections
from pathways_jupyter.session.supervisor.own_proxy import OwnProxy
from pathways_jupyter.session.supervisor.proxy import Proxy
from pathways_jupyter.session.supervisor.proxy_cycle import ProxyCycle
from pathways_jupyter.session.supervisor.session_log import SessionLog

DEADLINE = 60.0


async def test_the_end_waits_for_a_request_to_create_the_proxy_and_then_removes_it(config, monkeypatch, gone):
    begun, reached, create = asyncio.Event(), asyncio.Event(), objects.create

    async def slow(client, resource, *arguments, **options):
        if resource is JOBS:
            begun.set()
            await reached.wait()
        return await create(client, resource, *arguments, **options)

    async def listen() -> None:
        """Have no listener."""

    monkeypatch.setattr(objects, "create", slow)
    asked = config(1)
    log = SessionLog(new_record(config=protocol.config_to_json(asked)), asked)
    cycle = ProxyCycle(log, listen, EarlyConnections())
    async with asyncio.timeout(DEADLINE), listening(log.record):
        running = asyncio.create_task(cycle.run())
        await begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        ending = asyncio.create_task(cycle.end())
        # Without waiting it would find no Job to remove, and leave the one that comes then.
        done, _ = await asyncio.wait({ending}, timeout=1.0)
        assert not done
        reached.set()
        assert await ending == ""
    registry.remove(log.record)
    await asyncio.to_thread(gone, log.record.id)


async def test_a_reconnect_waits_for_a_job_that_an_interrupted_one_is_still_creating(cycles, monkeypatch):
    """Otherwise that Job has the name of the new proxy's, which could not be created for as long as it is there."""
    begun, arrives, waits = asyncio.Event(), asyncio.Event(), asyncio.Event()
    create, close = objects.create, Proxy.close
    asked, late, closed = [], [], []

    async def arrive(*arguments, **options):
        await arrives.wait()
        return await create(*arguments, **options)

    async def slow(client, resource, *arguments, **options):
        asked.extend([resource] * (resource is JOBS))
        if resource is JOBS and len(asked) == 2:
            # On its way to the server, where nothing cancels it.
            late.append(asyncio.create_task(arrive(client, resource, *arguments, **options)))
            begun.set()
            return await asyncio.shield(late[0])
        if resource is JOBS and late:
            arrives.set()
            await asyncio.wait(late)
        return await create(client, resource, *arguments, **options)

    async def closing(self):
        """Close what is not the request, for which the proxy waits next."""
        await close(self)
        closed.append(self)
        if len(closed) == 2:
            waits.set()
        elif len(closed) == 3 and not all(each.done() for each in self._creations):
            arrives.set()

    monkeypatch.setattr(objects, "create", slow)
    monkeypatch.setattr(Proxy, "close", closing)
    monkeypatch.setattr(proxy_cycle, "_OLD_PROXY_GRACE_SECONDS", 0.0)
    async with cycles() as made:
        await made.cycle.outcome()
        made.cycle.reconnect({})
        await begun.wait()
        await made.cycle.cancel()
        await waits.wait()
        made.cycle.reconnect({})
        assert (await made.cycle.outcome())["generation"] == 3


class Cycle:
    """The proxies of a session in this process, and a client that follows its events."""

    def __init__(self, asked: ConnectConfig) -> None:
        self.log = SessionLog(new_record(config=protocol.config_to_json(asked)), asked)
        self.cycle = ProxyCycle(self.log, self._listen, EarlyConnections())
        self.events: list[Event] = []

    async def start(self) -> None:
        near, far = socket.socketpair()
        _, self._writer = await asyncio.open_connection(sock=near)
        self._reader, self._other = await asyncio.open_connection(sock=far)
        self.log.history.listen(self._writer)
        self._running = asyncio.create_task(self.cycle.run())

    async def _listen(self) -> None:
        """Have no listener."""

    async def until(self, state: SessionState) -> None:
        """Return when an event says that the session has entered `state`."""
        while not self.events or self.events[-1].data.get("state") != state:
            event = protocol.decode(await self._reader.readline())
            assert isinstance(event, Event)
            self.events.append(event)

    @property
    def warnings(self) -> list[str]:
        """The warnings among the events so far."""
        return [each.message for each in self.events if each.kind is EventKind.WARNING]

    async def end(self) -> str:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        left = await self.cycle.end()
        registry.remove(self.log.record)
        self._writer.close()
        self._other.close()
        return left


@pytest.fixture
def cycles(config, gone):
    @contextlib.asynccontextmanager
    async def begin(**changes: Any) -> AsyncIterator[Cycle]:
        made = Cycle(config(1, **changes))
        async with asyncio.timeout(DEADLINE), listening(made.log.record):
            await made.start()
            try:
                yield made
            finally:
                assert await made.end() == ""
        await asyncio.to_thread(gone, made.log.record.id)

    return begin


def jobs_are(monkeypatch, change) -> None:
    """Let `change` see each Job that is to be created, and change it or refuse it."""
    create = objects.create

    async def changed(client, resource, body, **options):
        if resource is JOBS:
            change(body)
        return await create(client, resource, body, **options)

    monkeypatch.setattr(objects, "create", changed)


def deny_relays(job) -> None:
    if "initContainers" in job["spec"]["template"]["spec"]:
        raise ApiError('admission webhook "images.example.com" denied the request: not allowed', status=403)


def deny_all(job) -> None:
    raise ApiError('admission webhook "images.example.com" denied the request: no jobs', status=403)


def forget_sidecars(job) -> None:
    """As an API server does that does not know the field."""
    for each in job["spec"]["template"]["spec"].get("initContainers") or ():
        each.pop("restartPolicy", None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(deny_relays, "denied the request: not allowed"), (forget_sidecars, r"needs Kubernetes 1\.29")],
    ids=["denied", "old"],
)
async def test_a_session_goes_on_without_a_relay_that_its_cluster_does_not_take(cycles, monkeypatch, change, reason):
    jobs_are(monkeypatch, change)
    async with cycles(relay=True) as made:
        await made.cycle.outcome()
        await made.until(SessionState.CONNECTED)
        (warning,) = made.warnings
        assert re.search(reason, warning)
        made.cycle.reconnect({})
        await made.cycle.outcome()
        await made.until(SessionState.STARTING)
        await made.until(SessionState.CONNECTED)
        assert made.log.record.generation == 2
        assert made.warnings == [warning]


async def test_what_is_refused_with_and_without_a_relay_is_reported_as_it_is(cycles, monkeypatch):
    jobs_are(monkeypatch, deny_all)
    async with cycles(relay=True) as made:
        with pytest.raises(ApiError, match="denied the request: no jobs"):
            await made.cycle.outcome()
        await made.until(SessionState.FAILED)
        assert made.warnings == []


async def test_a_reconnect_with_other_settings_that_fails_leaves_those_of_the_session(cycles):
    async with cycles() as made:
        await made.cycle.outcome()
        before = made.log.config, made.log.record.instances
        made.cycle.reconnect({"instances": {"tpuv6e:2x2": 99}})
        with pytest.raises(CapacityError):
            await made.cycle.outcome()
        assert (made.log.config, made.log.record.instances) == before


async def test_a_proxy_that_is_replaced_is_not_said_to_be_connected_while_it_is_removed(cycles, monkeypatch):
    states, close = [], OwnProxy.close

    async def watched(self) -> None:
        states.append(made.log.record.state)
        await close(self)

    monkeypatch.setattr(OwnProxy, "close", watched)
    async with cycles() as made:
        await made.cycle.outcome()
        made.cycle.reconnect({})
        await made.cycle.outcome()
        assert states == [SessionState.STARTING]


@pytest.mark.parametrize("resource", [JOBS, LEASES], ids=lambda each: each.kind)
async def test_a_reconnect_waits_for_the_cluster_to_remove_what_the_previous_proxy_had(
    cycles, cluster, monkeypatch, resource
):
    refused, create = asyncio.Event(), objects.create

    async def watched(client, kind, *arguments, **options):
        try:
            return await create(client, kind, *arguments, **options)
        except ApiError as error:
            if kind is resource and error.status == 409:
                refused.set()
            raise

    monkeypatch.setattr(objects, "create", watched)
    async with cycles() as made, Client(load(str(cluster.kubeconfig))) as client:
        await made.cycle.outcome()
        before = made.log.record
        # As long as it has a finalizer the cluster only marks it, as while its garbage collector is behind.
        hold = {"metadata": {"finalizers": ["example.com/slow"]}}
        held = await objects.patch(client, resource, before.job, hold, namespace=before.namespace)
        made.cycle.reconnect({})
        outcome = asyncio.ensure_future(made.cycle.outcome())
        await asyncio.wait({outcome, asyncio.ensure_future(refused.wait())}, return_when=asyncio.FIRST_COMPLETED)
        release = {"metadata": {"finalizers": None}}
        await objects.patch(client, resource, before.job, release, namespace=before.namespace)
        await outcome
        found = await objects.get(client, resource, before.job, namespace=before.namespace)
        assert found["metadata"]["uid"] != held["metadata"]["uid"]
        assert refused.is_set()
