"""The controller of PathwaysJobs: creates each one's JobSet, and keeps its status current.

Every reconcile looks at the whole job and its JobSet, and makes at most one write of each kind, none of which depends
on an earlier one having been seen. So it may be killed between any two: the JobSet's name is the job's, which makes
creating it twice impossible; the status is a function of both objects; and an event's name is one of what it reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, ConfigError, PathwaysError
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.base.text import stamp
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import EVENTS, JOBSETS, PATHWAYS_JOBS, Object, Resource
from pathways_jupyter.kube.watch import Change, ChangeType, key_of
from pathways_jupyter.service.pathwaysjob import conditions, definition, expansion

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 60.0
_PARALLEL = 8
"""Keys that are reconciled at the same time."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Calls `reconcile` with every key that was added, until :meth:`close`.

    A key that is added while it is being reconciled is reconciled once more afterwards, because the change may have
    come after the reconcile read it. One that failed is tried again after a pause, which the next change ends.

    Args:
      failed: Called with a key and the error of its reconcile.
    """

    def __init__(self, reconcile: Callable[[K], Awaitable[None]], failed: Callable[[K, PathwaysError], None]) -> None:
        self._reconcile = reconcile
        self._failed = failed
        self._running: dict[K, asyncio.Task[None]] = {}
        # Set when the key was added since its last reconcile began.
        self._again: dict[K, asyncio.Event] = {}
        self._room = asyncio.Semaphore(_PARALLEL)

    def add(self, key: K) -> None:
        """Reconcile `key` soon."""
        if key in self._running:
            self._again[key].set()
        else:
            self._again[key] = asyncio.Event()
            self._running[key] = asyncio.create_task(self._run(key, self._again[key]))

    async def close(self) -> None:
        """Stop all work; a request that is being sent is cut off, which every reconcile has to survive anyway."""
        await tasks.stop(*self._running.values())

    async def _run(self, key: K, again: asyncio.Event) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        try:
            while True:
                again.clear()
                try:
                    async with self._room:
                        await self._reconcile(key)
                except PathwaysError as error:
                    self._failed(key, error)
                    # The change may be the one that the error asks for.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(backoff.next_pause()):
                            await again.wait()
                    continue
                if not again.is_set():
                    return
                backoff.reset()
        finally:
            # In the same step as the check above, so that no key is added in between and forgotten.
            del self._running[key], self._again[key]


_COMPONENT = "pathways-jupyter-operator"

Key = tuple[str, str]
"""Namespace and name of a job; its JobSet has the same."""


@dataclass
class Reconciles:
    """Number of reconciles, and the seconds that they took in all."""

    count: int = 0
    seconds: float = 0.0


class PathwaysJobController:
    """Controls the jobs of one namespace, or of all.

    Args:
      namespace: Empty for all.
      say: Called with each action, in words.
      reconciles: Where they are counted.
    """

    def __init__(
        self, informer: Informer, *, namespace: str = "", say: Callable[[str], None], reconciles: Reconciles
    ) -> None:
        self._client = informer.client
        self._informer = informer
        self._namespace = namespace
        self._reconciles = reconciles
        self._say = say
        self._queue = WorkQueue(self._counted_reconcile, self._failed)
        self._known: dict[Resource, dict[Key, Object]] = {JOBSETS: {}, PATHWAYS_JOBS: {}}
        self._jobsets_known = asyncio.Event()
        self._errors: dict[Key, str] = {}
        self._said: dict[Resource, str] = {}

    async def run(self) -> None:
        """Control jobs until cancelled."""
        # JobSets first: a job whose JobSet is not known yet would be created again, which the API server refuses, but
        # which costs a request for each job at every start.
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow(JOBSETS))
                await self._jobsets_known.wait()
                group.create_task(self._follow(PATHWAYS_JOBS))
        finally:
            await self._queue.close()

    async def _follow(self, resource: Resource) -> None:
        await self._informer.follow(resource, functools.partial(self._take, resource), namespace=self._namespace)

    def _take(self, resource: Resource, change: Change) -> None:
        if change.type is ChangeType.SYNCED:
            self._report(resource, "")
            if resource is JOBSETS:
                self._jobsets_known.set()
        elif change.type is ChangeType.LOST:
            # Not installed, or not allowed yet; both can be changed while this program runs.
            missing = isinstance(change.error, ApiError) and change.error.status == 404
            self._report(resource, f"there is no {resource.kind} API" if missing else str(change.error))
        else:
            key = key_of(change.object)
            if change.type is ChangeType.DELETED:
                self._known[resource].pop(key, None)
            else:
                self._known[resource][key] = change.object
            self._queue.add(key)

    async def _counted_reconcile(self, key: Key) -> None:
        began = time.monotonic()
        try:
            await self._reconcile(key)
        finally:
            self._reconciles.count += 1
            self._reconciles.seconds += time.monotonic() - began

    async def _reconcile(self, key: Key) -> None:
        job = self._known[PATHWAYS_JOBS].get(key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            self._errors.pop(key, None)
            return
        if (job.get("status") or {}).get("terminalState"):
            # Over. A JobSet that is gone must not be created again.
            return
        jobset = self._known[JOBSETS].get(key)
        if jobset is None:
            try:
                jobset = await self._create(job)
            except ConfigError as error:
                # The API server's rules allow no such job; one that is older than the rules may be there anyway.
                await self._write(job, conditions.failed(job, "Invalid", f"{error} {error.hint}", now=self._now()))
                return
        owners = jobset["metadata"].get("ownerReferences") or ()
        if all(each.get("uid") != job["metadata"]["uid"] for each in owners):
            message = f"JobSet {key[1]} exists already and does not belong to this job"
            await self._event(job, "JobSetExists", message, warning=True, occasion=jobset["metadata"]["uid"])
            raise PathwaysError(f"{message}.", hint="Delete that JobSet, or give the job another name.")
        await self._write(job, conditions.derive(job, jobset, now=self._now()))
        self._errors.pop(key, None)

    async def _create(self, job: Object) -> Object:
        """Create the job's JobSet; return it, or the one that is there already."""
        manifest = expansion.expand(job)
        manifest["metadata"]["ownerReferences"] = [{**objects.owner(job, controller=True), "blockOwnerDeletion": True}]
        namespace, name = key_of(job)
        try:
            made = await objects.create(self._client, JOBSETS, manifest, namespace=namespace)
        except ApiError as error:
            if error.status == 409:
                return await objects.get(self._client, JOBSETS, name, namespace=namespace)
            await self._event(job, "FailedCreate", str(error), warning=True, occasion=str(error))
            raise
        self._say(f"created JobSet {namespace}/{name}")
        uid = made["metadata"]["uid"]
        await self._event(job, "CreatedJobSet", f"Created JobSet {name}", occasion=uid)
        return made

    async def _write(self, job: Object, status: Mapping[str, Any]) -> None:
        if status == (job.get("status") or {}):
            return
        namespace, name = key_of(job)
        state, condition = conditions.current({"status": status})
        before, since = conditions.current(job)
        if state != before or not job.get("status"):
            # Before the status: a controller that is killed in between writes both again, and the event's name says
            # that it is there already. So the name is made of what the next one sees too, and not of the time.
            occasion = f"{state} {status.get('restarts', 0)} {before} {since.get('lastTransitionTime')}"
            message = str(condition.get("message") or f"The job is {state.lower()}")
            await self._event(job, state, message, warning=state == conditions.FAILED, occasion=occasion)
            self._say(f"{namespace}/{name} is {state.lower()}")
        body = {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}, "status": status}
        path = PATHWAYS_JOBS.item(namespace, name, "status")
        try:
            written = await self._client.request("PATCH", path, body=body, content_type="application/merge-patch+json")
        except ApiError as error:
            # 409: the job has changed, and the watch brings the change. 404: it is gone.
            if error.status in {404, 409}:
                return
            raise
        # Known from now on, so that a change of the JobSet that comes before the watch's echo starts from it.
        if (current := self._known[PATHWAYS_JOBS].get((namespace, name))) is job:
            self._known[PATHWAYS_JOBS][namespace, name] = written if isinstance(written, dict) else current

    async def _event(self, job: Object, reason: str, message: str, *, occasion: str, warning: bool = False) -> None:
        metadata = job["metadata"]
        digest = hashlib.sha256(f"{metadata['uid']} {reason} {occasion}".encode()).hexdigest()[:16]
        now = self._now()
        body: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{digest}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": definition.API_VERSION,
                "kind": definition.KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await objects.create(self._client, EVENTS, body)
        except ApiError as error:
            # 409: written before. Anything else must not keep a job from running: an event is for people to read.
            if error.status != 409:
                self._say(f"cannot write an event about {metadata['namespace']}/{metadata['name']}: {error}")

    def _failed(self, key: Key, error: PathwaysError) -> None:
        text = f"{'/'.join(key)}: {error} {error.hint}".strip()
        if self._errors.get(key) != text:
            self._errors[key] = text
            self._say(text)

    def _report(self, resource: Resource, trouble: str) -> None:
        if trouble != self._said.get(resource, ""):
            self._said[resource] = trouble
            self._say(trouble or f"following {resource.plural} again")

    def _now(self) -> str:
        return stamp(self._client.now())
