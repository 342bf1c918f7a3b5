"""The resource manager's slices: which hosts are registered, and which proxy holds which slice.

Pure data structures without I/O, so that every rule can be read, and tested, in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter.base.tpu import InstanceType


@dataclass(frozen=True)
class RegisteredHost:
    """One worker that has registered, as its message describes it.

    Attributes:
      slice_index: The slice that it is part of.
      index: Its place among the hosts of the slice.
      job: The Kubernetes Job of the slice, the name by which users know a slice.
      pod: The pod that it runs in.
      sidecar: The unix socket on which the colocated Python sidecar of its pod listens, if there is one.
      slices: How many slices its service had when it was started.
    """

    slice_index: int
    index: int
    job: str
    pod: str
    sidecar: str = ""
    slices: int = 0


@dataclass
class InventorySlice:
    """One slice: ready when all of its hosts have registered."""

    index: int
    instance_type: InstanceType
    hosts: dict[int, RegisteredHost] = field(default_factory=dict)
    holder: SliceRequest | None = None

    @property
    def ready(self) -> bool:
        """Return whether all hosts are registered."""
        return len(self.hosts) == self.instance_type.hosts

    @property
    def job(self) -> str:
        """The name by which users know the slice."""
        return next((host.job for host in self.hosts.values()), f"slice {self.index}")

    def to_message(self) -> dict[str, Any]:
        """Return the slice's state for a proxy."""
        return {
            "slice": self.index,
            "job": self.job,
            "up": self.ready,
            "sidecars": [host.sidecar for _, host in sorted(self.hosts.items())],
        }


@dataclass(eq=False)
class SliceRequest:
    """A proxy's request for slices.

    Attributes:
      instance_types: The instance type of each of its virtual slices.
      held: The slices that it had from this service before the connection was lost; it gets those and no others.
      granted: The slices that it holds, one for each that it wanted; empty while it waits.
    """

    name: str
    instance_types: Sequence[InstanceType]
    held: Sequence[int] = ()
    granted: list[InventorySlice] = field(default_factory=list)


class Slices:
    """All slices of a service, and the proxies that hold them or wait."""

    def __init__(self, instance_types: Sequence[InstanceType]) -> None:
        self.slices = [InventorySlice(index, each) for index, each in enumerate(instance_types)]
        self.waiting: list[SliceRequest] = []
        """The queue of proxies' requests."""
        self.gathering = True
        """True while workers that live may still be about to register, because the resource manager is new."""

    @property
    def ready(self) -> int:
        """The number of ready slices."""
        return sum(each.ready for each in self.slices)

    def grow(self, count: int) -> None:
        """Have at least so many slices, new ones of the last one's kind."""
        kind = self.slices[-1].instance_type
        self.slices += [InventorySlice(index, kind) for index in range(len(self.slices), count)]

    def refusal(self, host: RegisteredHost) -> str:
        """Return the reason why a worker cannot be part of this service; empty when it can."""
        if not 0 <= host.slice_index < len(self.slices):
            return f"there is no slice {host.slice_index}; this service has {len(self.slices)}"
        hosts = self.slices[host.slice_index].instance_type.hosts
        if not 0 <= host.index < hosts:
            return f"slice {host.slice_index} has {hosts} hosts; there is no host {host.index}"
        return ""

    def add(self, host: RegisteredHost) -> InventorySlice:
        """Register a worker, and return its slice."""
        target = self.slices[host.slice_index]
        target.hosts[host.index] = host
        return target

    def remove(self, host: RegisteredHost) -> InventorySlice | None:
        """Remove a worker, and return its slice; None when it has been removed already."""
        target = self.slices[host.slice_index]
        if target.hosts.get(host.index) is not host:
            return None
        del target.hosts[host.index]
        return target

    def impossible(self, request: SliceRequest) -> str:
        """Return the reason why a request can never be met; empty when it can, sooner or later."""
        have = Counter(each.instance_type for each in self.slices)
        for instance, count in Counter(request.instance_types).items():
            if count > have[instance]:
                return f"{count} slices of {instance} are wanted, and this service has {have[instance]}"
        return ""

    def release(self, request: SliceRequest) -> list[InventorySlice]:
        """Remove a proxy's request; return the slices that become free."""
        if request in self.waiting:
            self.waiting.remove(request)
        freed, request.granted = request.granted, []
        for each in freed:
            each.holder = None
        return freed

    def place(self) -> Iterator[SliceRequest]:
        """Grant free slices to waiting requests in their order: to each all the slices that it wants, or none.

        A request that waits keeps all later ones for the same instance type waiting, so that a large one gets its turn.
        """
        kept_back: set[InstanceType] = set()
        for request in list(self.waiting):
            kinds = set(request.instance_types)
            granted = None if kinds & kept_back else self._match(request)
            if granted is None:
                kept_back |= kinds
                continue
            self.waiting.remove(request)
            request.granted = granted
            for each in granted:
                each.holder = request
            yield request

    def why_waiting(self, request: SliceRequest) -> str:
        """Return the reason to show to the user of a waiting proxy."""
        reasons = []
        for each in self.slices:
            if each.instance_type not in request.instance_types:
                continue
            if each.holder is not None:
                reasons.append(f"slice {each.index} is held by {each.holder.name}")
            elif not each.ready:
                reasons.append(f"slice {each.index} is not ready")
        if ahead := self.waiting.index(request) if request in self.waiting else 0:
            reasons.append(f"{ahead} ahead in the queue")
        return "; ".join(reasons) or "other requests are ahead in the queue"

    def _match(self, request: SliceRequest) -> list[InventorySlice] | None:
        granted: list[InventorySlice] = []
        candidates = [self.slices[each] for each in request.held if each < len(self.slices)] or self.slices
        for instance in request.instance_types:
            free = (
                each
                for each in candidates
                # A slice that its proxy takes back may be down: the proxy is notified, and waits for it to heal.
                if each.holder is None
                and (each.ready or (request.held and not self.gathering))
                and each not in granted
                and each.instance_type == instance
            )
            chosen = next(free, None)
            if chosen is None:
                return None
            granted.append(chosen)
        return granted
