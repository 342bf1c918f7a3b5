"""Why a proxy ended: what its Job and its log say afterwards.

The end is known already, so these functions take little time, and what cannot be read hides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import textwrap

from pathways_jupyter.base.errors import ClusterError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, Object
from pathways_jupyter.kube.pods import logs
from pathways_jupyter.service import names, proxy_job, queues, untrusted
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.supervisor.lease_keeper import LeaseKeeper

_SECONDS = 2.0
"""Longest time spent on asking the Job for a cause, and then the log."""
_LOG_LINES = 2000
"""Lines from the end of a log: behind the fatal one are the stacks of all threads."""
_LONGEST_LINE = 500
_FATAL = re.compile(r"F\d{4} [^\]]*\] (.+)")
"""XLA's last line before it exits: ``F1123 10:28:52.123456 7 rendezvous.cc:161] Termination timeout ...``."""
_PYTHON_FATAL = re.compile(r"Fatal Python error: .+")


async def why_gone(client: Client, record: SessionRecord, reason: str, lease: LeaseKeeper | None) -> str:
    """Return `reason` with its cause: why the Job failed, that its Lease had expired, or the log's last fatal line."""
    removed = False
    with contextlib.suppress(ClusterError, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            job = await objects.find(client, JOBS, record.job, namespace=record.namespace)
            removed = job is None or bool(job["metadata"].get("deletionTimestamp"))
            if removed and (taker := await _taker(client, record)):
                return f"Its slices were taken by {taker}, because this session was silent for longer than its lease."
            if job is not None and _is_over(client, job):
                return _lifetime_over(job)
            if job is not None and (waits := await queues.waiting(client, job)):
                return f"{reason} {waits}"
            for each in ((job or {}).get("status") or {}).get("conditions") or ():
                failed = each.get("type") in {"Failed", "FailureTarget"} and each.get("status") == "True"
                # BackoffLimitExceeded only repeats that the Job's single pod failed.
                if failed and each.get("reason") != "BackoffLimitExceeded":
                    return f"{reason} {each.get('reason')}: {each.get('message')}".rstrip(".") + "."
    if removed:
        return lease.explain(reason) if lease is not None else reason
    return reason + await log_says(client, record, record.pod)


async def before_use(client: Client, record: SessionRecord, pod: str, problem: str, hint: str) -> ServiceError:
    """Return the error for a proxy that ended before it could be used.

    It says that its lifetime was over, or else `problem` with the last line of the log of `pod`.
    """
    with contextlib.suppress(ClusterError, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            job = await objects.find(client, JOBS, record.job, namespace=record.namespace)
            if job is not None and _is_over(client, job):
                return ServiceError(
                    f"The proxy ended before it could be used. {_lifetime_over(job)}",
                    hint=advice("Raise {max_lifetime}: it begins when the proxy is created."),
                )
            if job is not None and (waits := await queues.waiting(client, job)):
                return ServiceError(f"{problem} {waits}", hint=hint)
    return ServiceError(problem + await log_says(client, record, pod, any_line=True), hint=hint)


async def log_says(client: Client, record: SessionRecord, pod: str, *, any_line: bool = False) -> str:
    """Return a sentence with the last fatal line of a proxy's log; with `any_line`, or else with its last line.

    Empty if there is no such line, or it cannot be read.
    """
    said: dict[str, str] = {}
    with contextlib.suppress(ClusterError, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            container = names.PROXY_CONTAINER
            async for line in logs(client, pod, namespace=record.namespace, container=container, tail=_LOG_LINES):
                if fatal := _FATAL.match(line):
                    said["xla"] = fatal[1]
                elif _PYTHON_FATAL.match(line):
                    said["python"] = line
                elif any_line and line.strip():
                    said["last"] = line
    for each in ("xla", "python", "last"):
        if each in said:
            return f" Its log says: {textwrap.shorten(said[each], _LONGEST_LINE)}"
    return ""


def _is_over(client: Client, job: Object) -> bool:
    """Return whether the cluster ends `job` because of its deadline.

    By the time, because the Job's pod is deleted before its status says why. The server reports both times in whole
    seconds.
    """
    return 0 < proxy_job.deadline(job) <= client.now() + 1.0


def _lifetime_over(job: Object) -> str:
    longest = job["spec"]["activeDeadlineSeconds"]
    return f"The proxy's longest lifetime of {longest} s (--max-lifetime) is over, and the cluster ended it."


async def _taker(client: Client, record: SessionRecord) -> str:
    """Return who has taken the slices of this session while it was silent; empty if no session has."""
    for lease in (await objects.list_(client, LEASES, namespace=record.namespace, labels=names.SESSIONS)).items:
        if record.id in untrusted.annotation(lease, names.RECLAIMED_ANNOTATION, longest=65_536).split(","):
            whose = untrusted.SessionLabels.of(lease)
            return f"{whose.user or 'an unknown user'} ({whose.notebook or f'session {whose.session}'})"
    return ""
