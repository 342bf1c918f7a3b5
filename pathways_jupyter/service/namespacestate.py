"""Known objects of one namespace while they are watched: just enough to draw it.

A large service has thousands of Jobs, and thousands of pods of some hundred values each. Of a pod, only the few that a
picture shows are kept, worked out once when it has changed, and found by its purpose. That makes a new picture cheap,
and leaves little in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from pathways_jupyter.kube.objects import JOBS, JOBSETS, PATHWAYS_JOBS, PODS, Object, Resource, created
from pathways_jupyter.service import names, proxy_job, untrusted
from pathways_jupyter.service.podstate import State, pod_state, restarts

RESOURCES = (PODS, JOBS, JOBSETS, PATHWAYS_JOBS)

_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Facts about one pod that a picture needs.

    Attributes:
      created: In seconds since the epoch.
      reason: Why it is not ready; see :func:`~pathways_jupyter.service.podstate.pod_state`.
      restarts: How often its containers have been restarted.
      job: Name of its Job; empty without one.
      part: Its place in its service's JobSet; None without one.
    """

    name: str
    uid: str
    node: str
    created: float
    state: State
    reason: str
    restarts: int
    job: str
    part: untrusted.JobSetPosition | None

    @classmethod
    def of(cls, pod: Object) -> PodFacts:
        """Return the facts about `pod`."""
        metadata = pod["metadata"]
        state, reason = pod_state(pod)
        return cls(
            name=str(metadata["name"]),
            uid=str(metadata.get("uid") or ""),
            node=str((pod.get("spec") or {}).get("nodeName") or ""),
            created=created(pod),
            state=state,
            reason=untrusted.text(reason),
            restarts=restarts(pod),
            job=untrusted.controller(pod),
            part=untrusted.JobSetPosition.of(pod),
        )

    def groups(self) -> Iterator[_Key]:
        """Yield what the pod is found by."""
        if self.job:
            yield "job", self.job
        if self.part and self.part.replicated_job == names.HEAD_JOB:
            yield "head", self.part.jobset
        elif self.part:
            yield "slice", self.part.jobset, self.part.replicated_job, self.part.job_index


class PodIndex:
    """The pods of one namespace.

    Args:
      pods: Those that are known at the start.
    """

    def __init__(self, pods: Iterable[Object] = ()) -> None:
        self._known: dict[str, PodFacts] = {}
        self._groups: dict[_Key, dict[str, PodFacts]] = {}
        # Groups in order, from when they are first read until they change. An unchanged group is the same object, which
        # makes it cheap to see that nothing has to be drawn again.
        self._sorted: dict[_Key, tuple[PodFacts, ...]] = {}
        for pod in pods:
            self.put(pod)

    def get(self, name: str) -> PodFacts | None:
        """Return what is known of a pod."""
        return self._known.get(name)

    def put(self, pod: Object) -> bool:
        """Add or replace a pod; return whether a picture may look different now."""
        facts = PodFacts.of(pod)
        if self._known.get(facts.name) == facts:
            return False
        self.drop(facts.name)
        self._known[facts.name] = facts
        for key in facts.groups():
            self._groups.setdefault(key, {})[facts.name] = facts
            self._sorted.pop(key, None)
        return True

    def drop(self, name: str) -> bool:
        """Remove a pod; return whether it was there."""
        facts = self._known.pop(name, None)
        if facts is None:
            return False
        for key in facts.groups():
            group = self._groups[key]
            del group[name]
            self._sorted.pop(key, None)
            if not group:
                del self._groups[key]
        return True

    def of_job(self, job: str) -> tuple[PodFacts, ...]:
        """Return the pods of a Job, the newest last."""
        return self._group(("job", job))

    def of_head(self, jobset: str) -> tuple[PodFacts, ...]:
        """Return the pods of a service's head, the newest last."""
        return self._group(("head", jobset))

    def of_slice(self, jobset: str, worker_job: str, index: int) -> tuple[PodFacts, ...]:
        """Return the workers of one slice of a service, the newest last."""
        return self._group(("slice", jobset, worker_job, str(index)))

    def _group(self, key: _Key) -> tuple[PodFacts, ...]:
        found = self._sorted.get(key)
        if found is None:
            found = tuple(sorted(self._groups.get(key, {}).values(), key=attrgetter("created")))
            self._sorted[key] = found
        return found


class NamespaceState:
    """The objects of one namespace.

    Attributes:
      pods: Its pods.
      objects: By kind and name: proxies' Jobs whole, and of other Jobs how many of their pods are ready; of the pods
        only proxies that have lost their Job, as if they were Jobs.
    """

    def __init__(self) -> None:
        self.pods = PodIndex()
        self.objects: dict[Resource, dict[str, Object]] = {resource: {} for resource in RESOURCES}

    def proxies(self) -> Iterator[Object]:
        """Yield the Jobs that are proxies, and the pods of proxies that have lost theirs."""
        yield from (job for job in self.objects[JOBS].values() if proxy_job.container(job) is not None)
        yield from self.objects[PODS].values()

    def put(self, resource: Resource, item: Object) -> bool:
        """Add or replace an object; return whether the namespace may look different now."""
        objects, name = self.objects[resource], str(item["metadata"]["name"])
        if resource is PODS:
            before = objects.pop(name, None)
            if (orphan := proxy_job.of_orphan(item)) is not None:
                objects[name] = orphan
            return self.pods.put(item) or orphan != before
        stored = item
        if resource is JOBS and proxy_job.container(item) is None:
            stored = {"metadata": {"name": name}, "status": {"ready": (item.get("status") or {}).get("ready")}}
        if objects.get(name) == stored:
            return False
        objects[name] = stored
        return True

    def drop(self, resource: Resource, item: Object) -> bool:
        """Remove an object; return whether it was there."""
        name = str(item["metadata"]["name"])
        was_there = self.objects[resource].pop(name, None) is not None
        return self.pods.drop(name) if resource is PODS else was_there
