"""The proxy of a headless job, to which notebooks attach: whether there is one, where, and why it is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from pathways_jupyter.base.errors import ClusterError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS, PODS, Object
from pathways_jupyter.service import discovery, jobs, names, untrusted
from pathways_jupyter.service.pathwaysjob import conditions, obstacles
from pathways_jupyter.service.pathwaysjob.description import JobInfo

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_AGAIN = "A job runs once: apply it again under another name, and attach to that."


@dataclass(frozen=True)
class JobProxy:
    """A proxy that runs in the head pod of a job.

    Attributes:
      pod: The pod's manifest.
      port: The port on which the proxy listens.
      demands_alts: Whether on Google Cloud it accepts only clients with ALTS, which the tunnel does not have.
      unset: What its pod's containers refer to and do not set, see :attr:`.JobInfo.unset`.
    """

    job: JobInfo
    pod: Object
    port: int
    demands_alts: bool
    unset: tuple[str, ...] = ()


def head_labels(name: str) -> str:
    """Return the selector of the head pods of a job."""
    return f"{names.JOBSET_NAME_LABEL}={name},{names.REPLICATED_JOB_LABEL}={names.HEAD_JOB}"


async def find(
    client: Client, name: str, *, namespace: str, seconds: float, progress: Callable[[str], None]
) -> JobProxy:
    """Wait until a job runs, and return its proxy.

    Args:
      seconds: How long to wait for a job that is still starting.
      progress: Called with a sentence whenever the job's state changes meanwhile.

    Raises:
      ServiceError: There is no such job, it has no proxy for notebooks, it is suspended or over, or it does not start.
    """
    seen = "it is not known"
    try:
        async with asyncio.timeout(seconds):
            async with contextlib.aclosing(jobs.until_over(client, name, namespace=namespace)) as states:
                async for info in states:
                    # First, because a job that cannot have a proxy would be waited for until the time is over.
                    _check(info)
                    if info.state == conditions.RUNNING:
                        return await _proxy(client, info)
                    # The condition stays for a moment after the job was resumed.
                    if info.state == conditions.SUSPENDED and not info.queue and await _is_suspended(client, info):
                        raise _suspended(name)
                    seen = info.state.lower() + (f" ({info.reason.rstrip('.')})" if info.reason else "")
                    progress(f"Job {name} is {seen}.")
    except TimeoutError:
        raise ServiceError(
            f"Job {name} did not start within {seconds:.0f} s: {seen}.",
            hint=advice("{job_show:{name}} says what it waits for; {wait} waits longer.", name=name),
        ) from None
    raise AssertionError("until_over() ends with a state that raises")


async def why_gone(client: Client, proxy: JobProxy, reason: str, *, seconds: float) -> str:
    """Return why the proxy of a job is gone, as a sentence.

    Args:
      reason: What happened to its pod.
      seconds: How long to wait for the job's own state, which follows that of its pods.
    """
    job = proxy.job
    try:
        async with asyncio.timeout(seconds):
            await jobs.find(client, job.name, namespace=job.namespace)
            if await _is_suspended(client, job):
                return f"Job {job.name} was suspended."
            async with contextlib.aclosing(jobs.until_over(client, job.name, namespace=job.namespace)) as states:
                async for info in states:
                    if info.created != job.created:
                        return f"Job {job.name} was deleted."
                    if info.state == conditions.SUSPENDED:
                        return f"Job {job.name} was suspended."
                    if info.state in conditions.FINAL:
                        return f"{_over(info)} {reason}"
                    if info.restarts > job.restarts:
                        return f"Job {job.name} was restarted. {reason}"
    except ServiceError:
        return f"Job {job.name} was deleted."
    except (TimeoutError, ClusterError):
        # The job has not noticed yet, or cannot be asked: the pod's own reason has to do.
        pass
    return reason


def _check(info: JobInfo) -> None:
    """Raise if a notebook cannot attach to a job, however long it waits."""
    name = info.name
    if not info.headless:
        raise ServiceError(
            f"Job {name} has a program of its own; a notebook can attach to headless jobs only.",
            hint=advice("{job_new:NAME --tpu tpuv6e:2x2=2}, without a program after --, writes one."),
        )
    if info.state in conditions.FINAL:
        raise ServiceError(_over(info), hint=_AGAIN)


def _over(info: JobInfo) -> str:
    why = f": {info.reason.rstrip('.')}" if info.reason else ""
    return f"Job {info.name} is over ({info.state.lower()}){why}."


async def _proxy(client: Client, info: JobInfo) -> JobProxy:
    """Return the proxy of a running job; waits for the pod that replaces one that is being deleted."""
    async for _ in Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS):
        listed = (await objects.list_(client, PODS, namespace=info.namespace, labels=head_labels(info.name))).items
        own = (
            each
            for each in listed
            if untrusted.JobSetPosition.of(each) and not each["metadata"].get("deletionTimestamp")
        )
        if (newest := objects.newest(own)) is not None:
            containers = newest["spec"].get("containers") or ()
            proxy: Object = next((each for each in containers if each["name"] == names.PROXY_CONTAINER), {})
            port = int(discovery.flags(proxy).get("server_port") or names.PROXY_PORT)
            return JobProxy(
                info, newest, port, obstacles.demands_alts(containers), obstacles.unset_references(containers)
            )
        # No pod at all: the job's condition may be older than what was done to the job.
        if await _is_suspended(client, info):
            raise _suspended(info.name)
        _check(await jobs.find(client, info.name, namespace=info.namespace))
    raise AssertionError("a Backoff without a limit never ends")


async def _is_suspended(client: Client, job: JobInfo) -> bool:
    """Return whether a job is suspended, by its JobSet before its pods are deleted, and by its condition after."""
    jobset = await objects.find(client, JOBSETS, job.name, namespace=job.namespace)
    return jobset is not None and bool(jobset["spec"].get("suspend"))


def _suspended(name: str) -> ServiceError:
    return ServiceError(f"Job {name} is suspended.", hint=advice("{job_resume:{name}} starts it again.", name=name))
