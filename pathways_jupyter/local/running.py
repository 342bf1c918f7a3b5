"""A running cluster: store, kubelet, controllers, services, and the API server in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from pathways_jupyter.base import tasks
from pathways_jupyter.local import backoff
from pathways_jupyter.local.apiserver.app import ADMIN, ApiServer
from pathways_jupyter.local.apiserver.resources import JOBS, JOBSETS, PODS, Object
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.bucket import Bucket
from pathways_jupyter.local.controllers.garbage import GarbageCollector
from pathways_jupyter.local.controllers.job import JobController
from pathways_jupyter.local.controllers.jobset import JobSetController
from pathways_jupyter.local.controllers.kueue import KueueController, pending
from pathways_jupyter.local.controllers.node_pools import NodePoolController
from pathways_jupyter.local.controllers.nodes import NodeController, nodes_for
from pathways_jupyter.local.controllers.reconciler import Reconciler, condition
from pathways_jupyter.local.controllers.scheduler import Scheduler
from pathways_jupyter.local.credentials import POD_UID, pod_account, write_kubeconfig
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.initial_objects import OperatorController, ship
from pathways_jupyter.local.node.kubelet import Kubelet
from pathways_jupyter.local.node.network import Network
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.node.volumes import VolumeCleaner
from pathways_jupyter.local.settings import Settings, larger
from pathways_jupyter.service import names

_log = logging.getLogger(__name__)

_READY = re.compile(rb"\*\*\* (\d+)/\d+ Pathways Slices Now Ready")


class RunningCluster:
    """The parts of one cluster that run in the daemon.

    Args:
      directory: The cluster's directory, which exists and is empty.
      cold: Starts commands and light programs; runs already, and is closed with the cluster.
      warm: Starts programs that need JAX; likewise.
    """

    def __init__(self, directory: Path, settings: Settings, *, cold: Spawner, warm: Spawner) -> None:
        self._directory = directory
        self.settings = settings
        self._cold = cold
        self._warm = warm
        self.network = Network(directory)
        self._bucket = Bucket(directory, settings.bucket, cold)
        self._store = Store(directory / "state")
        self._kubelet = Kubelet(
            directory,
            network=self.network,
            cold=self._cold,
            warm=self._warm,
            restarts=backoff.FAST_RESTARTS if settings.fast_heal else backoff.CONTAINER_RESTARTS,
            account=self._account,
            forget=lambda uid: self.api.users.revoke(POD_UID, uid),
        )
        self.api = self._api_server(settings.port)
        self._controllers: list[Reconciler | GarbageCollector | Scheduler] = []
        self.restarting = asyncio.Lock()
        """Held while the API is restarted or the cluster grows."""
        self._nodes: NodeController
        self.services: dict[str, int] = {}
        """The slices of each of the cluster's own services, by name."""

    async def start(self) -> None:
        """Start everything; the services become ready on their own.

        Raises:
          LocalClusterError: The port is taken.
          ConfigError: An instance type is not in the catalogue.
        """
        nodes = nodes_for(self.settings.nodes, cpu_nodes=self.settings.cpu_nodes)
        await self.api.start()
        self._bucket.start()
        write_kubeconfig(self._directory / "kubeconfig", self.api, user=ADMIN, token=self.api.users.add(ADMIN))
        self._start_controllers(nodes)
        self.services = ship(self._store, self.settings, self._directory.name)

    async def grow(self, instances: Mapping[str, int], spare: Mapping[str, int]) -> None:
        """Have at least these slices per instance type; returns before they are ready.

        Raises:
          ConfigError: An instance type is not in the catalogue.
        """
        grown = dataclasses.replace(
            self.settings,
            instances=larger(self.settings.instances, instances),
            spare=larger(self.settings.spare, spare),
        )
        nodes = nodes_for(grown.nodes, cpu_nodes=grown.cpu_nodes)
        # The controllers and the store are others after a restart of the API.
        async with self.restarting:
            self.settings = grown
            self._nodes.want(nodes)
            self.services = ship(self._store, grown, self._directory.name)

    async def close(self) -> None:
        """End every process, and the API after the pods, so that no client sees a half-ended cluster as healthy."""
        await self._stop_controllers()
        await self._kubelet.close()
        await self.api.stop()
        await self._bucket.close()
        await asyncio.gather(self._cold.close(), self._warm.close())
        self._store.close()
        self.network.close()

    async def restart_api(self, away: float = 0.0) -> None:
        """Drop every connection, read the state from disk again, and serve on the same port; pods keep running.

        Args:
          away: Seconds between the two.
        """
        async with self.restarting:
            port = self.api.port
            await self.api.stop()
            await asyncio.sleep(away)
            await self._stop_controllers()
            # No await from here until the new store exists: a pod writes its status to the current store at any time.
            self._kubelet.detach()
            self._store.close()
            self._store = Store(self._directory / "state")
            self._start_controllers(nodes_for(self.settings.nodes, cpu_nodes=self.settings.cpu_nodes))
            self.api = self._api_server(port)
            await self.api.start()

    async def until_ready(self) -> None:
        """Wait until every service has all its slices, or has failed for good.

        Hollow services are ready with their pods.
        """
        settled: set[tuple[str, int]] = set()
        # The cluster may grow meanwhile.
        while missing := set(self.services.items()) - settled:
            # A service that has failed for good never becomes ready.
            await asyncio.gather(
                *(tasks.first_done(self._until_ready(each), self._until_failed(each)) for each, _ in missing)
            )
            settled |= missing

    @property
    def failed(self) -> dict[str, str]:
        """Reasons of the services that have failed for good, by name."""
        found = {}
        for service in self.services:
            obj = self._store.find(JOBSETS, names.DEFAULT_NAMESPACE, service)
            failure = condition((obj or {}).get("status") or {}, "Failed")
            if failure is not None:
                found[service] = str(failure.get("message") or failure.get("reason") or "no reason was given")
        return found

    @property
    def busy(self) -> bool:
        """Whether the cluster is in use: by a client of the API, or by a Job that is not one of its services'."""
        return self.api.in_use > 0 or any(
            (job["metadata"].get("labels") or {}).get(names.JOBSET_NAME_LABEL) not in self.services
            and not condition(job.get("status", {}), "Complete")
            and not condition(job.get("status", {}), "Failed")
            for job in self._store.list(JOBS)
        )

    def _account(self, pod: Object) -> Mapping[str, str]:
        """The variables by which a pod reaches the API and the bucket."""
        directory = self._directory / "pods" / pod["metadata"]["uid"]
        return {**pod_account(pod, directory=directory, api=self.api), **self._bucket.variables}

    def _api_server(self, port: int) -> ApiServer:
        return ApiServer(
            self._store,
            self._kubelet,
            directory=self._directory,
            port=port,
            pending=pending,
        )

    def _start_controllers(self, nodes: list[Object]) -> None:
        recorder = Recorder(self._store)
        job_restarts = backoff.FAST_RESTARTS if self.settings.fast_heal else backoff.JOB_RESTARTS
        self._nodes = NodeController(
            self._store,
            recorder,
            nodes,
            address=self._kubelet.node_address,
        )
        self._controllers = [
            self._nodes,
            NodePoolController(self._store, self._nodes),
            Scheduler(self._store, recorder),
            JobSetController(self._store, recorder),
            JobController(self._store, recorder, backoff=job_restarts),
            KueueController(self._store, recorder),
            GarbageCollector(self._store),
            OperatorController(self._store),
            VolumeCleaner(self._store, self._directory),
        ]
        self._kubelet.attach(self._store, recorder)
        for controller in self._controllers:
            controller.start()

    async def _stop_controllers(self) -> None:
        await asyncio.gather(*(each.close() for each in self._controllers))
        self._controllers.clear()

    async def _until_failed(self, service: str) -> None:
        while service not in self.failed:
            # A watch ends when the API restarts; the next one is on the new store.
            watch = self._store.watch(JOBSETS, names.DEFAULT_NAMESPACE)
            try:
                while await watch.batch():
                    if service in self.failed:
                        return
            finally:
                watch.close()

    async def _until_ready(self, service: str) -> None:
        """Follow the logs of the resource manager, and of its replacements, until one reports all slices ready."""

        def is_head(pod: Object) -> bool:
            labels = pod["metadata"].get("labels") or {}
            head = (service, names.HEAD_JOB)
            return (labels.get(names.JOBSET_NAME_LABEL), labels.get(names.REPLICATED_JOB_LABEL)) == head

        while True:
            watch = self._store.watch(PODS, names.DEFAULT_NAMESPACE, test=is_head)
            try:
                while changes := await watch.batch():
                    pod = changes[-1].object
                    if self.settings.hollow and condition(pod.get("status", {}), "Ready"):
                        return
                    # LookupError: its container has no log yet; the pod's next change tries again.
                    with contextlib.suppress(LookupError):
                        if await self._reports_ready(pod["metadata"]["uid"], service):
                            return
            finally:
                watch.close()

    async def _reports_ready(self, uid: str, service: str) -> bool:
        async for piece in self._kubelet.logs(uid, names.RESOURCE_MANAGER_CONTAINER, follow=True):
            # All of those that it should have by now: it also reported when it had all of fewer.
            if any(int(ready) >= self.services[service] for ready in _READY.findall(piece)):
                return True
        return False
