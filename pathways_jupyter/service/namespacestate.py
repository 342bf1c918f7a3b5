"""Known objects of one namespace while they are watched: just enough to draw it.

A large service has thousands of pods and Jobs, so little is kept of each.
"""

from __future__ import annotations

from collections.abc import Iterator

from pathways_jupyter.kube.objects import JOBS, JOBSETS, PATHWAYS_JOBS, PODS, Object, Resource
from pathways_jupyter.service import proxy_job
from pathways_jupyter.service.podindex import PodIndex

RESOURCES = (PODS, JOBS, JOBSETS, PATHWAYS_JOBS)


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

    def clear(self, resource: Resource) -> None:
        """Forget all objects of one kind."""
        if resource is PODS:
            self.pods = PodIndex()
        self.objects[resource] = {}

    def put(self, resource: Resource, item: Object) -> bool:
        """Add or replace an object; return whether the namespace may look different now."""
        known, name = self.objects[resource], str(item["metadata"]["name"])
        if resource is PODS:
            before = known.pop(name, None)
            if (orphan := proxy_job.of_orphan(item)) is not None:
                known[name] = orphan
            return self.pods.put(item) or orphan != before
        kept = item
        if resource is JOBS and proxy_job.container(item) is None:
            kept = {"metadata": {"name": name}, "status": {"ready": (item.get("status") or {}).get("ready")}}
        if known.get(name) == kept:
            return False
        known[name] = kept
        return True

    def drop(self, resource: Resource, item: Object) -> bool:
        """Remove an object; return whether it was there."""
        name = str(item["metadata"]["name"])
        known = self.objects[resource].pop(name, None) is not None
        return self.pods.drop(name) if resource is PODS else known
