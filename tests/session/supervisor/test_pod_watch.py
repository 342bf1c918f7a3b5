"""Following a proxy's pod, and ceasing to."""

from __future__ import annotations

import asyncio

import pytest

from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.service import names
from pathways_jupyter.session.supervisor import pod_watch
from pathways_jupyter.session.supervisor.pod_watch import PodEnded, PodWatch, RelayRefused
from pathways_jupyter.tunnel.relay import relay_container as relay

DEADLINE = 60.0
LABELS = {"proxy": "p1", names.JOB_UID_LABEL: "p1"}
JOB = {"metadata": {"uid": "p1"}, "spec": {}}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}


class Pods:
    """Pods of one proxy Job, and a watch of them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self.watch = PodWatch(self.said.put_nowait)
        self.watch.begin(client, "default", "proxy=p1")
        self.watch.expect(JOB, relay=False)

    async def until_said(self, words: str) -> None:
        """Wait until the watch reports `words`; it has looked at all that was done before."""
        while words not in await self.said.get():
            pass

    async def make(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": LABELS}}
        spec = {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}
        await objects.create(self.client, PODS, {**body, "spec": spec}, namespace="default")

    async def become(self, name: str, status: dict) -> None:
        path = PODS.item("default", name, "status")
        merge = "application/merge-patch+json"
        await self.client.request("PATCH", path, body={"status": status}, content_type=merge)

    async def delete(self, name: str) -> None:
        await objects.delete(self.client, PODS, name, namespace="default", grace_seconds=0)


@pytest.fixture
async def pods(client):
    made = Pods(client)
    yield made
    await made.watch.close()


async def test_the_first_pod_is_the_proxy_and_a_second_one_is_not(pods):
    """A Job replaces a pod that was deleted; the new one has nothing of what was on the first."""
    async with asyncio.timeout(DEADLINE):
        await pods.make("first")
        await pods.become("first", READY)
        assert (await pods.watch.ready)["metadata"]["name"] == "first"
        await pods.make("second")
        await pods.become("second", {"phase": "Failed", "reason": "Evicted"})
        await pods.delete("second")
        await pods.make("third")
        await pods.become("third", READY)
        await pods.become("first", {"conditions": [{"type": "Ready", "status": "False", "reason": "Flapping"}]})
        await pods.until_said("Flapping")
        assert not pods.watch.lost.done()
        await pods.delete("first")
        assert await pods.watch.lost == "Pod first was deleted."


async def test_a_pod_that_ends_before_it_is_ready_is_an_error_that_says_how(pods):
    async with asyncio.timeout(DEADLINE):
        await pods.make("first")
        ended = {"terminated": {"reason": "Error", "exitCode": 2, "message": "x\nbad flag"}}
        await pods.become("first", {"phase": "Failed", "containerStatuses": [{"name": "main", "state": ended}]})
        with pytest.raises(PodEnded, match=r"Pod first ended: Error, exit code 2: bad flag\."):
            await pods.watch.ready
        assert await pods.watch.lost == "Pod first ended: Error, exit code 2: bad flag."


async def test_a_pod_that_can_never_start_is_an_error_at_once(pods):
    async with asyncio.timeout(DEADLINE):
        await pods.make("first")
        waiting = {"waiting": {"reason": "ErrImageNeverPull", "message": "not here"}}
        await pods.become("first", {"containerStatuses": [{"name": "main", "image": "i:1", "state": waiting}]})
        with pytest.raises(ServiceError, match=r"\(i:1\): not here"):
            await pods.watch.ready
        assert not pods.watch.lost.done()


async def test_why_a_pod_does_not_run_yet_is_reported(pods):
    async with asyncio.timeout(DEADLINE):
        assert pods.watch.last_seen == "there is no pod yet"
        await pods.make("first")
        await pods.become("first", {"conditions": [UNSCHEDULABLE]})
        await pods.until_said("0/3 nodes")
        assert pods.watch.last_seen == "Pod first waits for a node: 0/3 nodes are available"


def relay_waits(**about: object) -> dict:
    waiting = {"waiting": {"reason": "PodInitializing", **about}}
    return {"initContainerStatuses": [{"name": relay.NAME, "image": "i:1", "state": waiting}]}


def watch_relay(pods: Pods, labels: str = "proxy=p1", **spec: bool) -> PodWatch:
    watch = PodWatch(pods.said.put_nowait)
    watch.begin(pods.client, "default", labels)
    watch.expect({**JOB, "spec": spec}, relay=True)
    return watch


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (relay_waits(reason="ErrImagePull", message="no route"), r"cannot start: .* \(i:1\): no route"),
        (relay_waits(), r"did not start within 2 s: Pod first is starting\."),
        (None, r"did not start within 2 s: there is no pod yet\."),
    ],
    ids=["refused", "slow", "denied"],
)
async def test_a_relay_that_holds_up_its_pod_for_too_long_is_an_error_of_its_own(pods, monkeypatch, status, problem):
    monkeypatch.setattr(pod_watch, "RELAY_START_SECONDS", 2.0)
    async with asyncio.timeout(DEADLINE):
        if status is not None:
            await pods.make("first")
            await pods.become("first", status)
        watch = watch_relay(pods)
        with pytest.raises(RelayRefused, match=problem):
            await watch.ready
        await watch.close()


@pytest.mark.parametrize(
    "condition",
    [UNSCHEDULABLE, {"type": "PodReadyToStartContainers", "status": "False"}],
    ids=["no node", "no network"],
)
async def test_a_relay_is_not_late_while_its_pod_cannot_run_anything(pods, monkeypatch, condition):
    monkeypatch.setattr(pod_watch, "RELAY_START_SECONDS", 2.0)
    async with asyncio.timeout(DEADLINE):
        await pods.make("first")
        await pods.become("first", {"conditions": [condition], **relay_waits()})
        watch = watch_relay(pods)
        await pods.until_said("first")
        # One that sees no pod, as a measure of the time.
        late = watch_relay(pods, "absent=here")
        with pytest.raises(RelayRefused):
            await late.ready
        assert not watch.ready.done()
        await pods.become("first", READY)
        await watch.ready
        await asyncio.gather(watch.close(), late.close())


async def test_a_suspended_job_may_have_its_pod_later(pods, monkeypatch):
    monkeypatch.setattr(pod_watch, "RELAY_START_SECONDS", 0.5)
    async with asyncio.timeout(DEADLINE):
        watch, late = watch_relay(pods, suspend=True), watch_relay(pods)
        with pytest.raises(RelayRefused):
            await late.ready
        assert not watch.ready.done()
        await asyncio.gather(watch.close(), late.close())


async def test_who_is_cancelled_while_a_watch_closes_is_cancelled(cluster):
    """Else a supervisor whose kernel ends while it gives up a lost proxy would go on for ever."""
    async with Client(load(str(cluster.kubeconfig))) as client:
        watch = PodWatch(lambda words: None)
        watch.begin(client, "default", "absent=here")
        closing = asyncio.create_task(watch.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
