"""A running cluster: store, kubelet, controllers, services, and the API server in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from pathways_jupyter.base import runtime_files, tasks
from pathways_jupyter.local.apiserver.app import ADMIN, ApiServer
from pathways_jupyter.local.apiserver.credentials import POD_UID, pod_account, write_kubeconfig
from pathways_jupyter.local.apiserver.resources import JOBS, JOBSETS, NODES, PODS, SERVICE_ACCOUNTS, Object
from pathways_jupyter.local.apiserver.selectors import labels_of
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.bucket import Bucket
from pathways_jupyter.local.controllers.garbage import GarbageCollector
from pathways_jupyter.local.controllers.job import JobController
from pathways_jupyter.local.controllers.jobset import JobSetController
from pathways_jupyter.local.controllers.kueue import KueueController, pending
from pathways_jupyter.local.controllers.node_pools import NodePoolController
from pathways_jupyter.local.controllers.nodes import NodeController, nodes_for
from pathways_jupyter.local.controllers.reconciler import Reconciler, condition, finished
from pathways_jupyter.local.controllers.scheduler import Scheduler
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.initial_objects import OperatorController, ship
from pathways_jupyter.local.node.kubelet import Kubelet
from pathways_jupyter.local.node.network import Network
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.node.volumes import VolumeCleaner
from pathways_jupyter.local.settings import ClusterSettings, larger, most_hosts
from pathways_jupyter.service import names

_RELEASE_SECONDS = 5.0
_READY = re.compile(rb"\*\*\* (\d+)/\d+ Pathways Slices Now Ready")


class RunningCluster:
    """The parts of one cluster that run in the daemon.

    Args:
      directory: The cluster's directory, which exists, with no more in it than the bucket of an earlier cluster.
      cold: Starts commands and light programs; runs already, and is closed with the cluster.
      warm: Starts programs that need JAX; likewise.
      record: Called before the cluster grows or shrinks, with the settings that it is to have; if this raises, nothing
        is changed.
    """

    def __init__(
        self,
        directory: Path,
        settings: ClusterSettings,
        *,
        cold: Spawner,
        warm: Spawner,
        record: Callable[[ClusterSettings], object] = lambda _: None,
    ) -> None:
        self._directory = directory
        self._record = record
        self.settings = settings
        self._cold = cold
        self._warm = warm
        self.network = Network(directory)
        self._bucket = Bucket(directory, settings.bucket, cold)
        self._store = Store()
        self._kubelet = Kubelet(
            directory,
            network=self.network,
            cold=self._cold,
            warm=self._warm,
            restarts=settings.container_restarts,
            account=self._account,
            forget=lambda uid: self.api.users.revoke(POD_UID, uid),
        )
        self.api = ApiServer(self._store, self._kubelet, directory=directory, port=settings.port, pending=pending)
        self._controllers: list[Reconciler | GarbageCollector | Scheduler] = []
        self.changing = asyncio.Lock()
        """Held while the API is restarted, or the cluster grows or shrinks."""
        self._nodes: NodeController
        self.services: dict[str, int] = {}
        """The slices of each of the cluster's own services, by name."""
        self._changed: dict[str, float] = {}
        """Time of the last growth of each service that has grown."""

    async def start(self) -> None:
        """Start everything; the services become ready on their own. If that fails, all that had started is ended.

        Raises:
          LocalClusterError: The port is taken, or the bucket's directory cannot be created.
          ConfigError: An instance type is not in the catalogue.
        """
        try:
            nodes = nodes_for(self.settings.nodes)
            await self.api.start()
            self._bucket.start()
            token = self.api.users.add(ADMIN)
            kubeconfig = self._directory / runtime_files.KUBECONFIG
            write_kubeconfig(kubeconfig, self.api.url, self.api.ca, user=ADMIN, token=token)
            self._start_controllers(nodes)
            self.services = ship(self._store, self.settings, self._directory.name)
        except BaseException:
            await self.close()
            raise

    async def grow(self, instances: Mapping[str, int], spare: Mapping[str, int], *, free: bool, unbounded: bool) -> int:
        """Have at least these slices per instance type; returns before they are ready.

        Args:
          free: Do not count those that sessions hold.
          unbounded: Have more hosts than this machine runs well, if need be.

        Returns:
          0; or so many hosts would be more than this machine runs well, and nothing was changed.

        Raises:
          ConfigError: An instance type is not in the catalogue.
        """
        if free and larger(self.settings.instances, instances) == self.settings.instances:
            # There are enough in all: some may be about to be released, by a kernel that was restarted for example.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._until_free(instances)
        async with self.changing:
            needed = self._beside_held(instances) if free else instances
            grown = dataclasses.replace(
                self.settings,
                instances=larger(self.settings.instances, needed),
                spare=larger(self.settings.spare, spare),
            )
            if not unbounded and grown.hosts > max(most_hosts(), self.settings.hosts):
                return grown.hosts
            # Raises for an instance type that does not exist.
            nodes_for(grown.nodes)
            self._record(grown)
            now = time.time()
            for service, kind in grown.services.items():
                if grown.instances[kind] > self.settings.instances.get(kind, 0):
                    # What its resource manager reported before is about fewer slices, or about some that are gone.
                    self._changed[service] = now
            self._have(grown)
        return 0

    async def shrink(self, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
        """Have the slices again that there were `before` a growth; return False if that is not possible.

        That is so if there are others now than right `after` the growth, or if any of them may be in use: by a proxy
        that is newer, or that may have waited for them.
        """
        async with self.changing:
            shrunk = dataclasses.replace(self.settings, instances=before)
            if self.settings.instances != after:
                return False
            for service, kind in self.settings.services.items():
                proxies = self._proxies(service)
                left = before.get(kind, 0)
                if left < after[kind] and (
                    sum(slices for slices, _ in proxies) > left
                    # Not known any more after another growth was undone: then any proxy may have waited.
                    or any(created >= self._changed.get(service, 0.0) for _, created in proxies)
                ):
                    return False
            self._record(shrunk)
            gone = {node["metadata"]["name"] for node in nodes_for(self.settings.nodes)}
            for service, kind in self.settings.services.items():
                if kind not in before:
                    self._store.delete(JOBSETS, names.DEFAULT_NAMESPACE, service)
                self._changed.pop(service, None)
                # A JobSet's controller removes none: on a real cluster the number of Jobs cannot change.
                for job in self._store.list(JOBS):
                    marks = labels_of(job)
                    part = (marks.get(names.JOBSET_NAME_LABEL), marks.get(names.REPLICATED_JOB_LABEL))
                    if part == (service, names.WORKER_JOB) and int(marks[names.JOB_INDEX_LABEL]) >= before.get(kind, 0):
                        self._store.delete(JOBS, names.DEFAULT_NAMESPACE, job["metadata"]["name"])
            self._have(shrunk)
            for name in gone - {node["metadata"]["name"] for node in nodes_for(shrunk.nodes)}:
                if self._store.find(NODES, "", name) is not None:
                    self._store.delete(NODES, "", name)
        return True

    def _have(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._nodes.want(nodes_for(settings.nodes))
        self.services = ship(self._store, settings, self._directory.name)

    def _beside_held(self, instances: Mapping[str, int]) -> dict[str, int]:
        """Return the slices that there must be for `instances` of them to be free."""
        services = {kind: service for service, kind in self.settings.services.items()}
        return {
            kind: count + sum(slices for slices, _ in self._proxies(services[kind])) if kind in services else count
            for kind, count in instances.items()
        }

    async def _until_free(self, instances: Mapping[str, int]) -> None:
        with contextlib.closing(self._store.watch(JOBS)) as watch:
            while larger(self.settings.instances, self._beside_held(instances)) != self.settings.instances:
                if not await watch.batch():
                    return

    def _proxies(self, service: str) -> list[tuple[int, float]]:
        """Return the proxies that hold slices of a service or wait for them: how many, and when it was created."""
        proxies = []
        for job in self._store.list(JOBS):
            if "deletionTimestamp" in job["metadata"] or finished(job.get("status") or {}):
                continue
            for container in job["spec"]["template"]["spec"]["containers"]:
                flags = dict(str(each).removeprefix("--").partition("=")[::2] for each in container.get("args") or ())
                slices = flags.get("virtual_slices", "")
                name, namespace = names.service_of(flags.get("resource_manager_address", ""))
                key = name, namespace or job["metadata"]["namespace"]
                if slices and key == (service, names.DEFAULT_NAMESPACE):
                    created = datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp()
                    # To the end of that second.
                    proxies.append((slices.count(",") + 1, created + 1))
        return proxies

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
        """Drop every connection, and serve on the same port again; objects, controllers and pods go on.

        Args:
          away: Seconds between the two.
        """
        async with self.changing:
            await self.api.stop()
            await asyncio.sleep(away)
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
        failures = {}
        for service in self.services:
            obj = self._store.find(JOBSETS, names.DEFAULT_NAMESPACE, service)
            failure = condition((obj or {}).get("status") or {}, "Failed")
            if failure is not None:
                failures[service] = str(failure.get("message") or failure.get("reason") or "no reason was given")
        return failures

    @property
    def busy(self) -> bool:
        """Return whether the cluster is in use: by a client of the API, or by a Job of none of its services."""
        return self.api.in_use > 0 or bool(self.work)

    @property
    def work(self) -> list[dict[str, str]]:
        """Work besides the cluster's own services: ``kind``, ``name``, and the ``session`` that it belongs to."""
        rows = {}
        for job in self._store.list(JOBS):
            labels, metadata = labels_of(job), job["metadata"]
            jobset = labels.get(names.JOBSET_NAME_LABEL)
            if jobset in self.services or finished(job.get("status") or {}) or "deletionTimestamp" in metadata:
                continue
            kind, name = "Job", metadata["name"]
            if jobset:
                jobset_object = self._store.find(JOBSETS, metadata["namespace"], jobset) or {}
                owners = jobset_object.get("metadata", {}).get("ownerReferences") or [{"kind": "JobSet"}]
                kind, name = owners[0]["kind"], jobset
            key = metadata["namespace"], kind, name
            rows[key] = {"kind": kind, "name": name, "session": labels.get(names.SESSION_LABEL, "")}
        return [rows[key] for key in sorted(rows)]

    def _account(self, pod: Object) -> Mapping[str, str]:
        """Return the variables by which a pod reaches the API and the bucket."""
        metadata, api = pod["metadata"], self.api
        directory = self._directory / "pods" / metadata["uid"]
        account = self._store.find(SERVICE_ACCOUNTS, metadata["namespace"], pod["spec"]["serviceAccountName"])
        reached = pod_account(pod, account, directory=directory, url=api.url, ca=api.ca, users=api.users)
        return {**reached, **self._bucket.variables}

    def _start_controllers(self, nodes: list[Object]) -> None:
        recorder = Recorder(self._store)
        self._nodes = NodeController(self._store, recorder, nodes, address=self._kubelet.node_address)
        self._controllers = [
            self._nodes,
            NodePoolController(self._store, self._nodes),
            Scheduler(self._store, recorder),
            JobSetController(self._store, recorder),
            JobController(self._store, recorder, backoff=self.settings.job_restarts),
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
            # A watch that falls behind ends.
            with contextlib.closing(self._store.watch(JOBSETS, names.DEFAULT_NAMESPACE)) as watch:
                while await watch.batch():
                    if service in self.failed:
                        return

    async def _until_ready(self, service: str) -> None:
        """Follow the logs of the resource manager, and of its replacements, until one reports all slices ready."""

        def is_head(pod: Object) -> bool:
            labels = labels_of(pod)
            head = (service, names.HEAD_JOB)
            return (labels.get(names.JOBSET_NAME_LABEL), labels.get(names.REPLICATED_JOB_LABEL)) == head

        while True:
            with contextlib.closing(self._store.watch(PODS, names.DEFAULT_NAMESPACE, test=is_head)) as watch:
                while changes := await watch.batch():
                    pod = changes[-1].object
                    if self.settings.hollow and condition(pod.get("status", {}), "Ready"):
                        return
                    # LookupError: its container has no log yet; the pod's next change tries again.
                    with contextlib.suppress(LookupError):
                        if await self._reports_ready(pod["metadata"]["uid"], service):
                            return

    async def _reports_ready(self, uid: str, service: str) -> bool:
        since = self._changed.get(service)
        async for piece in self._kubelet.logs(uid, names.RESOURCE_MANAGER_CONTAINER, follow=True, since=since):
            # All of those that it should have by now: it also reported when it had all of fewer.
            if any(int(ready) >= self.services[service] for ready in _READY.findall(piece)):
                return True
        return False
