"""An API server that counts by user what it is asked, and the objects of many users' sessions and jobs.

It is the embedded cluster's, over its HTTPS, in this process and without controllers: objects stay as they were made.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.text import stamp
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import PATHWAYS_JOBS
from pathways_jupyter.local.apiserver.app import ApiServer
from pathways_jupyter.local.apiserver.credentials import write_kubeconfig
from pathways_jupyter.local.apiserver.resources import CRDS, JOBS, JOBSETS, LEASES, PODS, ResourceType
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.node.kubelet import Kubelet
from pathways_jupyter.local.node.network import Network
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.service import leases, names, proxy_job, service_jobset
from pathways_jupyter.service.pathwaysjob import definition, submission
from pathways_jupyter.service.session_figures import SessionFigures
from pathways_jupyter.tunnel.relay.relay_container import RelaySpec

TYPE = "tpuv6e:2x2"
RENEWAL_SECONDS = int(leases.DEFAULT_SECONDS / leases.RENEWALS_PER_LEASE)
_SERVICE = names.DEFAULT_SERVICE

Asked = dict[str, Counter[str]]
"""Requests so far, by user, verb and resource."""


def count(api: ApiServer) -> Asked:
    """Count the requests from now on."""
    asked: Asked = {}

    def note(user: Any, question: Any) -> None:
        # A port-forward counts once: it needs two permissions.
        if (question.verb, question.resource) != ("create", "pods/portforward"):
            asked.setdefault(user.name, Counter())[f"{question.verb} {question.resource}"] += 1

    api.audit = note
    return asked


class _Kubelet(Kubelet):
    """The kubelet of pods that run nothing: a log that is followed stays open."""

    def logs(self, *_: Any, **__: Any) -> AsyncGenerator[bytes, None]:
        return _silence()


async def _silence() -> AsyncGenerator[bytes, None]:
    await asyncio.Event().wait()
    yield b""


class Crowd:
    """The cluster of many users.

    Attributes:
      asked: What they asked for.
    """

    def __init__(self, directory: Path, api: ApiServer, store: Store) -> None:
        self.directory = directory
        self._api = api
        self._store = store
        self.asked = count(api)
        self._jobs: ResourceType = PODS
        self._pods: list[str] = []

    def kubeconfig(self, user: str) -> str:
        """Return the path of a kubeconfig for `user`."""
        token = self._api.users.add(user)
        write_kubeconfig(self.directory / user, self._api.url, self._api.ca, user=user, token=token)
        return str(self.directory / user)

    def add_service(self, slices: int) -> None:
        """Create a service whose pods are all ready."""
        spec = service_jobset.ServiceSpec(tpu.parse_instance_type(TYPE), slices, "r/server:1", name=_SERVICE)
        self._store.create(JOBSETS, service_jobset.manifest(spec))
        for part, number in ((names.HEAD_JOB, 1), (names.WORKER_JOB, slices)):
            for index in range(number):
                about = {names.JOBSET_NAME_LABEL: _SERVICE, names.REPLICATED_JOB_LABEL: part}
                about |= {names.JOB_INDEX_LABEL: str(index), names.POD_INDEX_LABEL: "0"}
                self._pods.append(self._add_pod(f"{_SERVICE}-{part}-{index}", "u", about))

    def add_sessions(self, number: int) -> None:
        """Create proxies with relays, each with its pod and its Lease."""
        for index in range(number):
            spec = proxy_job.ProxySpec(
                session=f"s{index}",
                service=_SERVICE,
                address=service_jobset.address(_SERVICE),
                image="r/proxy_server:1",
                instances={TYPE: 1},
                user=f"user{index}",
                relay=RelaySpec("0" * 64),
            )
            job = self._store.create(JOBS, proxy_job.job(spec), namespace="default")
            about = job["metadata"]
            self._add_pod(about["name"], about["uid"], about["labels"])
            lease = {"metadata": {"name": about["name"], "labels": about["labels"]}, "spec": {}}
            lease["metadata"] |= {"annotations": {}, "ownerReferences": [objects.owner(job)]}
            self._renew(self._store.create(LEASES, lease, namespace="default"))

    def add_jobs(self, number: int) -> None:
        """Create PathwaysJobs."""
        self._store.create(CRDS, definition.definition())
        served = self._store.resources.of_kind(PATHWAYS_JOBS.api_version, PATHWAYS_JOBS.kind)
        assert served is not None
        self._jobs = served
        for index in range(number):
            made = submission.new(f"job-{index}", {TYPE: 1}, ["python", "-c", "1"], image="python:3.12")
            self._store.create(self._jobs, made, namespace="default")

    def start_jobs(self) -> None:
        """Report the JobSets of all jobs as started."""
        started = {"type": "StartupPolicyCompleted", "status": "True", "reason": "x", "message": "started"}
        status = {"conditions": [{**started, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        for jobset in self._store.list(JOBSETS):
            if jobset["metadata"].get("ownerReferences"):
                self._store.update(JOBSETS, {**jobset, "status": status}, subresource="status")

    async def until_jobs(self, state: str) -> None:
        """Wait until the status of each job says `state`."""
        left = {each["metadata"]["name"] for each in self._store.list(self._jobs)}
        watch = self._store.watch(self._jobs)
        try:
            while left:
                for change in await watch.batch():
                    conditions = (change.object.get("status") or {}).get("conditions") or ()
                    if any(each["type"] == state and each["status"] == "True" for each in conditions):
                        left.discard(change.object["metadata"]["name"])
        finally:
            watch.close()

    async def live(self) -> None:
        """Until cancelled, renew the sessions' Leases as often as they do, and change a pod of the service a second."""
        due = [name for each in self._store.list(LEASES) if (name := each["metadata"]["name"]) != names.OPERATOR_LEASE]
        for turn in itertools.count():
            for name in due[turn % RENEWAL_SECONDS :: RENEWAL_SECONDS]:
                self._renew(self._store.get(LEASES, "default", name))
            conditions = {"conditions": [{"type": "Ready", "status": str(turn % 2 == 0)}]}
            pod = self._store.get(PODS, "default", self._pods[-1])
            self._store.update(PODS, {**pod, "status": {**pod["status"], **conditions}}, subresource="status")
            await asyncio.sleep(1)

    def _add_pod(self, job: str, uid: str, about: dict[str, str]) -> str:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}
        metadata = {"name": f"{job}-abcde", "labels": about, "ownerReferences": [owner]}
        spec = {"nodeName": "n0", "containers": [{"name": names.PROXY_CONTAINER, "image": "r/server:1"}]}
        pod = self._store.create(PODS, {"metadata": metadata, "spec": spec}, namespace="default")
        running = {"name": names.PROXY_CONTAINER, "state": {"running": {}}, "containerID": "c0"}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._store.update(PODS, {**pod, "status": {**ready, "containerStatuses": [running]}}, subresource="status")
        return str(metadata["name"])

    def _renew(self, lease: Any) -> None:
        about = lease["metadata"]["labels"]
        session, user = about[names.SESSION_LABEL], about[names.USER_LABEL]
        figures = SessionFigures(session, user, "default", _SERVICE, SessionState.CONNECTED, 0.0, 0, 4)
        lease["metadata"]["annotations"] = {names.KEEP_ANNOTATION: "7200", names.FIGURES_ANNOTATION: figures.to_json()}
        lease["spec"] = {"leaseDurationSeconds": 60, "renewTime": stamp(time.time(), micro=True)}
        self._store.update(LEASES, lease)


@contextlib.asynccontextmanager
async def crowd() -> AsyncIterator[Crowd]:
    """Start an API server for many users."""
    with tempfile.TemporaryDirectory(prefix="pw-") as name:
        directory, store = Path(name), Store()
        network = Network(directory)
        kubelet = _Kubelet(directory, network=network, cold=Spawner(), warm=Spawner())
        api = ApiServer(store, kubelet, directory=directory)
        await api.start()
        try:
            yield Crowd(directory, api, store)
        finally:
            await api.stop()
            network.close()
