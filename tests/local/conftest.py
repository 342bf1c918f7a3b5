from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pathways_jupyter.local.apiserver.resources import JOBS, PODS, Object, ResourceType
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.controllers.garbage import GarbageCollector
from pathways_jupyter.local.controllers.job import JobController
from pathways_jupyter.local.controllers.jobset import JobSetController
from pathways_jupyter.local.controllers.nodes import NodeController, nodes_for
from pathways_jupyter.local.controllers.scheduler import Scheduler
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.node.kubelet import Kubelet
from pathways_jupyter.local.node.network import Network
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.settings import FAST_RESTARTS, HOLLOW_ANNOTATION

DEADLINE = 90.0

OF_ALL_RUNS = frozenset(
    {
        "apiserver/test_client.py",
        "apiserver/test_client_calls.py",
        "pathways/ifrt/test_messages.py",
        "pathways/test_freed_memory.py",
        "pathways/test_program_start.py",
        "test_event_recorder.py",
    }
)
"""Files that a run of all tests has, too; the others test nothing but the embedded cluster: `make test-local`."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the embedded cluster itself, unless this folder or a file in it is named."""
    here = Path(__file__).parent
    if any(here in (path := Path(each.partition("::")[0]).resolve()).parents or path == here for each in config.args):
        return
    left_out = [
        item
        for item in items
        if here in item.path.parents and item.path.relative_to(here).as_posix() not in OF_ALL_RUNS
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


class Machine:
    """A store with a kubelet, as tests use them."""

    def __init__(self, store: Store, kubelet: Kubelet, cold: Spawner, network: Network) -> None:
        self.store = store
        self.kubelet = kubelet
        self.cold = cold
        self.network = network

    async def until(
        self, condition: Callable[[Object | None], Any], name: str, resource: ResourceType = PODS, namespace="default"
    ) -> Object:
        """Wait until an object (None while it does not exist) fulfils a condition, and return it."""
        found = self.store.find(resource, namespace if resource.namespaced else "", name)
        if condition(found):
            return found
        watch = self.store.watch(resource)
        last = found
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    for _ in await watch.batch():
                        last = self.store.find(resource, namespace if resource.namespaced else "", name)
                        if condition(last):
                            return last
        except TimeoutError:
            raise AssertionError(f"{name} never got there: {last}") from None
        finally:
            watch.close()

    async def until_gone(self, name: str, resource: ResourceType = PODS) -> None:
        await self.until(lambda obj: obj is None, name, resource)

    def pod(self, name: str, *command: str, node: str = "n0", **spec: Any) -> Object:
        """Create a pod of one container that runs a command."""
        container = {"name": "main", "image": "python:3", "command": list(command), **spec.pop("container", {})}
        metadata = {"name": name, **spec.pop("metadata", {})}
        pod_spec = {"containers": [container, *spec.pop("others", ())], "restartPolicy": "Never", **spec}
        if node:
            pod_spec["nodeName"] = node
        return self.store.create(PODS, {"metadata": metadata, "spec": pod_spec}, namespace="default")

    def create(self, resource: ResourceType, name: str, **body: Any) -> Object:
        metadata = {"name": name, **body.pop("metadata", {})}
        return self.store.create(resource, {"metadata": metadata, **body}, namespace="default")

    def job(self, name: str, *command: str, hollow: bool = False, **spec: Any) -> Object:
        """Create a Job whose pods run a command."""
        pod = {
            "restartPolicy": spec.pop("restartPolicy", "Never"),
            "containers": [{"name": "main", "image": "x", "command": list(command)}],
        }
        template = {"spec": pod}
        if hollow:
            template["metadata"] = {"annotations": {HOLLOW_ANNOTATION: "true"}}
        return self.create(JOBS, name, spec={"template": template, **spec})

    def pods(self, **labels: str) -> list[Object]:
        return [
            pod
            for pod in self.store.list(PODS, "default")
            if labels.items() <= (pod["metadata"].get("labels") or {}).items()
        ]

    async def until_pods(self, condition: Callable[[list[Object]], Any], **labels: str) -> list[Object]:
        """Wait until the pods with these labels, together, fulfil a condition, and return them."""
        watch = self.store.watch(PODS)
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition(self.pods(**labels)):
                    await watch.batch()
        except TimeoutError:
            raise AssertionError(f"the pods never got there: {self.pods(**labels)}") from None
        finally:
            watch.close()
        return self.pods(**labels)

    async def logs(self, name: str, container: str = "", **options: Any) -> str:
        defaults = {"follow": False, "tail": None, "previous": False, "since": None, "timestamps": False}
        uid = self.store.get(PODS, "default", name)["metadata"]["uid"]
        pieces = self.kubelet.logs(uid, container, **{**defaults, **options})
        async with asyncio.timeout(DEADLINE):
            return b"".join([piece async for piece in pieces]).decode()


@pytest.fixture
async def machine(tmp_path: Path):
    network = Network(tmp_path)
    cold, warm = Spawner(log=tmp_path / "cold.log"), Spawner(log=tmp_path / "warm.log")
    cold.start()
    store = Store()
    kubelet = Kubelet(tmp_path, network=network, cold=cold, warm=warm, restarts=FAST_RESTARTS)
    kubelet.attach(store, Recorder(store))
    yield Machine(store, kubelet, cold, network)
    await asyncio.wait_for(kubelet.close(), DEADLINE)
    await asyncio.wait_for(cold.close(), DEADLINE)
    network.close()
    assert not list((tmp_path / "pods").glob("*"))


INSTANCES = {"tpuv6e:2x2": 2, "tpuv6e:2x4": 1}


@pytest.fixture
async def controlled(machine: Machine):
    """A machine with nodes and every controller: two slices of one host, and one of two."""
    store, recorder = machine.store, Recorder(machine.store)
    controllers = [
        NodeController(
            store, recorder, nodes_for(INSTANCES), address=machine.kubelet.node_address, repair_seconds=0.05
        ),
        Scheduler(store, recorder),
        JobSetController(store, recorder),
        JobController(store, recorder, backoff=FAST_RESTARTS),
        GarbageCollector(store),
    ]
    for controller in controllers:
        controller.start()
    yield machine
    for controller in controllers:
        await asyncio.wait_for(controller.close(), DEADLINE)
