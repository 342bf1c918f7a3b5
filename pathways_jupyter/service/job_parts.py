"""The objects that a job consists of, and which of its containers a name means.

An earlier job may have had the same name; its last pods may still be ending, and its events are kept for an hour. So an
object belongs to a job by the uids of its owners: from a pod to its Job, the JobSet and the PathwaysJob.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, PODS, Object
from pathways_jupyter.service import names, untrusted
from pathways_jupyter.service.pathwaysjob.description import job_info, main_container

MAIN = "main"
PROGRAMS = {
    MAIN: "",
    "rm": names.RESOURCE_MANAGER_CONTAINER,
    "proxy": names.PROXY_CONTAINER,
    "worker": names.WORKER_CONTAINER,
}
"""Short names of what a job runs, and the container of each; that of the job's own program has any name."""


@dataclass(frozen=True)
class JobParts:
    """The objects of a job.

    Attributes:
      manifest: The PathwaysJob, or the JobSet that is the job.
      jobset: None before it is made.
      jobs: One for the head, and one for each slice.
    """

    manifest: Object
    jobset: Object | None
    jobs: Sequence[Object]
    pods: Sequence[Object]

    @property
    def uids(self) -> frozenset[str]:
        """The uids of all of them."""
        all_objects = (self.manifest, *([self.jobset] if self.jobset else []), *self.jobs, *self.pods)
        return frozenset(_uid(each) for each in all_objects)

    @property
    def lacks_jobs(self) -> bool:
        """Return whether there is a JobSet that has not made all of its Jobs."""
        parts = self.jobset["spec"].get("replicatedJobs") or () if self.jobset is not None else ()
        return len(self.jobs) < sum(int(each.get("replicas", 1)) for each in parts)

    @property
    def lacking(self) -> Mapping[str, float]:
        """The uids of those that lack parts which they should make, and when each made its last part; 0 for none."""
        if self.jobset is None:
            return {_uid(self.manifest): 0.0}
        missing = {_uid(self.jobset): max(map(objects.created, self.jobs), default=0.0)} if self.lacks_jobs else {}
        for job in self.jobs:
            status, own = job.get("status") or {}, [each for each in self.pods if _owner(each) == _uid(job)]
            there = int(status.get("active") or 0) + int(status.get("succeeded") or 0)
            if there < int(job["spec"].get("parallelism", 1)) and not job["spec"].get("suspend"):
                missing[_uid(job)] = max(map(objects.created, own), default=0.0)
        return missing

    def locate(self, named: str, which: str = "") -> tuple[str, str]:
        """Return the pod and the container that are meant.

        Args:
          named: The name of a container of the head or the workers, or else one of :data:`PROGRAMS`.
          which: Slice and host of the worker, ``SLICE-HOST``; default: the first.

        Raises:
          ServiceError: There is no such container now.
        """
        name, heads = self.manifest["metadata"]["name"], dict[str, str]()
        workers: dict[str, dict[str, str]] = {}
        # The last one counts: a pod that was replaced stays for a while beside its successor.
        for pod in sorted(self.pods, key=objects.created):
            part, here = untrusted.JobSetPosition.of(pod), dict.fromkeys(_containers(pod), str(pod["metadata"]["name"]))
            if part is not None and part.replicated_job == names.HEAD_JOB:
                heads = here
            elif part is not None:
                workers[f"{part.job_index}-{part.host}"] = here
        on_workers = list(dict.fromkeys(each for worker in sorted(workers) for each in workers[worker]))
        is_a_container = named in heads or named in on_workers
        container = named if is_a_container else PROGRAMS.get(named, named)
        if not container:
            # The job's own program.
            if job_info(self.manifest).headless:
                raise ServiceError(f"Job {name} is headless: it has no program of its own.", hint="Choose rm or proxy.")
            container = main_container(self.manifest)
        if container in heads and not (which and container in on_workers):
            return heads[container], container
        worker = which if "-" in which else f"{which or 0}-0"
        if container in workers.get(worker, ()):
            return workers[worker][container], container
        if named in PROGRAMS or container in on_workers or not self.pods:
            raise ServiceError(
                f"Job {name} has no pod of its {' '.join(filter(None, (named, which)))} now.",
                hint=advice("{job_show:{name}} says why.", name=name),
            )
        raise ServiceError(f"Job {name} has no container {named}.", hint=f"It has: {', '.join([*heads, *on_workers])}.")


async def fetch(client: Client, manifest: Object, jobset: Object | None) -> JobParts:
    """Return the parts of a job.

    Args:
      manifest: Its PathwaysJob, or the JobSet that it is.
      jobset: The JobSet of its name; one of another owner is not its own.

    Raises:
      ApiError: Reading one of the kinds is forbidden.
      ClusterError: The server could not be reached.
    """
    labels = f"{names.JOBSET_NAME_LABEL}={manifest['metadata']['name']}"
    namespace = str(manifest["metadata"]["namespace"])
    if jobset is not None and not is_own(manifest, jobset):
        jobset = None
    jobs, pods = await asyncio.gather(
        *(objects.list_(client, each, namespace=namespace, labels=labels) for each in (JOBS, PODS))
    )
    own = [each for each in jobs.items if jobset is not None and _owner(each) == _uid(jobset)]
    makers = {_uid(each) for each in own}
    listed = [each for each in pods.items if untrusted.JobSetPosition.of(each) and _owner(each) in makers]
    return JobParts(manifest, jobset, own, listed)


def is_own(manifest: Object, jobset: Object) -> bool:
    """Return whether a JobSet is that of a job, or is the job, and not one of an earlier job of its name."""
    return _uid(manifest) in {_uid(jobset), _owner(jobset)}


def _uid(item: Object) -> str:
    return str(item["metadata"]["uid"])


def _owner(item: Object) -> str:
    """Return the uid of the object that controls `item`; empty without one."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((str(each.get("uid")) for each in owners if each.get("controller")), "")


def _containers(pod: Object) -> list[str]:
    return [each["name"] for kind in ("initContainers", "containers") for each in pod["spec"].get(kind) or ()]
