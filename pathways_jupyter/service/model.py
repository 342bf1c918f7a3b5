"""Model of a service: slices with their hosts, and the proxies that hold them.

Nothing is guessed: a proxy whose log does not name its slices counts as the holder of a number of slices, but no slice
is shown as held by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pathways_jupyter.base.text import count
from pathways_jupyter.service.names import short_path
from pathways_jupyter.service.podstate import State


@dataclass(frozen=True)
class Reclaimable:
    """A proxy with a relay whose session is silent: it is kept until its slices are needed.

    Attributes:
      silent_since: When its Lease was renewed last, in seconds since the epoch.
      kept_until: When it is removed even if no one needs its slices, likewise.
    """

    silent_since: float
    kept_until: float


@dataclass(frozen=True)
class Holder:
    """A proxy (and so a session) that holds slices or waits for them.

    Attributes:
      session: Empty for proxies that this package did not make.
      user: Its user label; empty without one.
      notebook: Path of the notebook, or empty.
      since: When it got its slices, in seconds since the epoch; when its Job was created while it waits for them, or if
        its log cannot be read.
      instances: Number of slices that it requested, per instance type.
      waiting: Whether it still waits for some of them; None when its log could not be read.
      placed: Number of slices that it has; None when its log could not be read.
      job: Name of its Job.
      pod: Name of its pod; empty before there is one.
      reclaimable: Set while its session is silent, and the proxy is kept only until someone needs its slices.
      until: When the cluster ends it at the latest, in seconds since the epoch; 0 if that is not known.
    """

    session: str
    user: str
    notebook: str
    since: float
    instances: Mapping[str, int]
    waiting: bool | None
    placed: int | None
    job: str
    pod: str = ""
    reclaimable: Reclaimable | None = None
    until: float = 0.0

    def __str__(self) -> str:
        where = short_path(self.notebook) or (self.session and f"session {self.session}")
        return f"{self.user or self.job}{f' ({where})' if where else ''}"


@dataclass(frozen=True)
class SliceHost:
    """A host of a slice.

    Attributes:
      index: Its index in the slice.
      pod: Its worker pod; empty while there is none.
      node: The node that the pod runs on.
      reason: Kubernetes' reason why it is not ready.
      restarts: How often its worker has been restarted.
    """

    index: int
    state: State
    pod: str = ""
    node: str = ""
    reason: str = ""
    restarts: int = 0


class Availability(StrEnum):
    """Availability of a slice to a session, in the word that all views use."""

    FREE = "free"
    IN_USE = "in use"
    RECLAIMABLE = "reclaimable"
    """Its session is silent: the next one that needs it gets it."""
    READY = "ready"
    """Ready; its holder, if there is one, is not known."""
    STARTING = "starting"
    DOWN = "down"


@dataclass(frozen=True)
class Slice:
    """A slice.

    Attributes:
      state: That of its worst host; down too while its holder has lost it, until the holder's proxy has it again.
      worker_job: The Job of its workers.
      held_by: Its holder; None when it is free, or when the holder is unknown (see :attr:`Service.certain`).
    """

    index: int
    state: State
    hosts: tuple[SliceHost, ...]
    worker_job: str
    held_by: Holder | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks in text, HTML and on pages, beside its state and its holder."""
        return tuple(sorted({host.reason for host in self.hosts if host.reason}))


@dataclass(frozen=True)
class Service:
    """A service.

    Attributes:
      head: State of its resource manager.
      holders: All proxies that hold slices or wait for them, oldest first.
      certain: Whether the holder of every slice is known.
      reason: Kubernetes' reason why the resource manager is not ready.
      queue: The queue of Kueue's from which it has its chips; empty for none.
      state: Ready when its resource manager and at least one slice are, so that a session can use it.
      clock_ahead: By how many seconds this machine's clock is ahead of the cluster's, by which all times here are.
    """

    name: str
    namespace: str
    address: str
    instance_type: str
    head: State
    slices: tuple[Slice, ...]
    holders: tuple[Holder, ...]
    certain: bool
    reason: str = ""
    queue: str = ""
    clock_ahead: int = 0
    # A field and no property: ``--json`` prints fields.
    state: State = field(init=False)

    def __post_init__(self) -> None:
        states = {each.state for each in self.slices}
        best = next((each for each in (State.READY, State.STARTING) if each in states), State.DOWN)
        object.__setattr__(self, "state", best if self.head is State.READY else self.head)

    def availability(self, each: Slice) -> Availability:
        """Return the word for one of its slices."""
        if each.state is not State.READY:
            return Availability(each.state)
        if each.held_by is not None:
            return Availability.IN_USE if each.held_by.reclaimable is None else Availability.RECLAIMABLE
        return Availability.FREE if self.certain else Availability.READY

    @property
    def problem(self) -> str:
        """Why it is not ready, as a clause; empty when it is."""
        if self.state is State.READY:
            return ""
        what, reasons = "its resource manager is not ready", {self.reason}
        if self.head is State.READY:
            what = f"0 of {count(len(self.slices), 'slice')} ready"
            reasons = {host.reason for each in self.slices for host in each.hosts}
        listed = ", ".join(sorted(filter(None, reasons)))
        return f"{what} ({listed})" if listed else what

    @property
    def ready(self) -> int:
        """Number of slices that are ready, held or not."""
        return sum(1 for each in self.slices if each.state is State.READY)

    @property
    def free(self) -> int:
        """Number of slices that are ready and, as far as is known, not held."""
        if self.certain:
            return sum(1 for each in self.slices if self.availability(each) is Availability.FREE)
        return max(0, self.ready - sum(_holding(each, self.instance_type) for each in self.holders))

    @property
    def in_use(self) -> int:
        """Number of slices that proxies hold, as far as is known."""
        if self.certain:
            return sum(1 for each in self.slices if each.held_by is not None)
        return min(len(self.slices), sum(_holding(each, self.instance_type) for each in self.holders))

    @property
    def reclaimable(self) -> int:
        """Number of slices of silent sessions, which the next one that needs them gets; they do not count as free."""
        silent = [each for each in self.holders if each.reclaimable is not None]
        if self.certain:
            return sum(1 for each in self.slices if each.held_by in silent)
        return min(len(self.slices), sum(_holding(each, self.instance_type) for each in silent))

    def available_to(self, job: str) -> int:
        """Return the number of slices that are ready and, as far as is known, free or held by the proxy `job`."""
        ready = [each for each in self.slices if each.state is State.READY]
        if self.certain:
            return sum(1 for each in ready if each.held_by is None or each.held_by.job == job)
        others = sum(_holding(each, self.instance_type) for each in self.holders if each.job != job)
        return max(0, len(ready) - others)


def _holding(holder: Holder, instance_type: str) -> int:
    return holder.instances.get(instance_type, 0) if holder.placed is None else holder.placed
