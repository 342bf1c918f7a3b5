"""Chip-hours by holder, as far as the cluster still knows.

The sources are proxy Jobs and their Leases. Both are deleted with their session, and the cluster keeps no other record
of them: what ended is counted only while its Job is still there, for example because its owner died a moment ago.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, Object
from pathways_jupyter.service import discovery, leases, names, proxy_job, unreadable, untrusted
from pathways_jupyter.service.model import Reclaimable
from pathways_jupyter.service.session_figures import SessionFigures

NOT_RECORDED = (
    "Only proxies whose Job still exists are counted. A session's Job is deleted when the session ends, and the "
    "cluster keeps no other record of it: chip-hours of the past come from Prometheus (docs/operations.md)."
)


@dataclass(frozen=True)
class Held:
    """Chip-hours of one proxy within the time that was asked about.

    Attributes:
      user: Its user label; empty for proxies that this package did not make.
      session: Empty for such proxies.
      service: Address of the service.
      instances: Slices per instance type.
      chips: Of all its slices; None for instance types that are not in the catalogue.
      began: When it began to hold them, in seconds since the epoch; not before the time that was asked about.
      ended: When it ended; None while it is there.
      waits: Whether it waits for its slices now, and holds none.
      certain: Whether time spent waiting is left out; otherwise it may be counted as held.
      queue: The queue of Kueue's from which its service has the chips; empty for none.
      reclaimable: Set while its session is silent, and it is kept only until someone needs its slices.
    """

    user: str
    session: str
    job: str
    namespace: str
    service: str
    instances: Mapping[str, int]
    chips: int | None
    began: float
    ended: float | None
    seconds: float
    waits: bool
    certain: bool
    queue: str = ""
    reclaimable: Reclaimable | None = None

    @property
    def chip_hours(self) -> float | None:
        """Chips times hours; None when the number of chips is not known."""
        return None if self.chips is None else self.chips * self.seconds / 3600


@dataclass(frozen=True)
class Usage:
    """All that is known about a span of time.

    Attributes:
      since: Its beginning, in seconds since the epoch on the API server's clock.
      until: Its end, which is now.
      proxies: The largest share first.
      odd: Number of Jobs and Leases of which something cannot be read, so that less is known than they say.
    """

    since: float
    until: float
    proxies: tuple[Held, ...]
    odd: int = 0

    def by_user(self) -> dict[str, float]:
        """Return the chip-hours of each user, the largest first; proxies of an unknown user go by their Job."""
        total: dict[str, float] = {}
        for each in self.proxies:
            who = each.user or each.job
            total[who] = total.get(who, 0.0) + (each.chip_hours or 0.0)
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


async def fetch(client: Client, namespace: str, seconds: float) -> Usage:
    """Get the usage of the last `seconds`.

    Args:
      namespace: Empty for all namespaces.

    Raises:
      ApiError: Listing Jobs or Leases is forbidden.
      ClusterError: The server could not be reached.
    """
    jobs, found, pods = await asyncio.gather(
        objects.list_(client, JOBS, namespace=namespace),
        objects.list_(client, LEASES, namespace=namespace),
        # Only for proxies that have lost their Job.
        objects.list_if_allowed(client, PODS, namespace=namespace),
    )
    orphans = [held for each in pods if (held := proxy_job.of_orphan(each)) is not None]
    return usage([*jobs.items, *orphans], found.items, since=client.now() - seconds, now=client.now())


def usage(jobs: Iterable[Object], found: Iterable[Object], *, since: float, now: float) -> Usage:
    """Compute the usage from the Jobs and Leases of a cluster; both times are in seconds since the epoch."""
    jobs, found = list(jobs), list(found)
    by_place = {leases.place(lease): lease for lease in found}
    held = [each for job in jobs if (each := _held(job, by_place.get(leases.place(job)), since, now)) is not None]
    sorted_ = tuple(sorted(held, key=lambda each: (-(each.chip_hours or 0.0), each.job)))
    return Usage(since, now, sorted_, unreadable.number_of([*jobs, *found]))


def _held(job: Object, lease: Object | None, since: float, now: float) -> Held | None:
    container = proxy_job.container(job)
    if container is None:
        return None
    metadata, whose, instances = job["metadata"], untrusted.SessionLabels.of(job), proxy_job.instances(container)
    figures = SessionFigures.of_lease(lease, now) if lease is not None else None
    began = untrusted.time((job.get("status") or {}).get("startTime")) or objects.created(job)
    # After a reconnect the figures still contain the waits of previous proxies, which are not known one by one.
    certain = figures is not None and not figures.reconnects
    waits = figures is not None and figures.state == SessionState.WAITING
    # In a queue of Kueue's.
    waits = waits or bool((job.get("spec") or {}).get("suspend"))
    over = objects.true_condition(job, "Complete", "Failed")
    at = ((job.get("status") or {}).get("completionTime") or over.get("lastTransitionTime")) if over else None
    ended = untrusted.time(at) or None
    until = min(now, ended or now)
    try:
        chips: int | None = sum(tpu.parse_instance_type(name).chips * number for name, number in instances.items())
    except ConfigError:
        chips = None
    if certain and figures is not None and began + figures.waited <= until:
        began += figures.waited
    else:
        # Also where it says that it has waited for longer than it has been there.
        certain = False
    if until < since:
        return None
    began = max(since, began)
    return Held(
        user=whose.user,
        session=whose.session,
        job=str(metadata["name"]),
        namespace=str(metadata.get("namespace") or ""),
        service=untrusted.text(discovery.flags(container).get("resource_manager_address")),
        instances=instances,
        chips=chips,
        began=began,
        ended=ended,
        seconds=0.0 if waits else max(0.0, until - began),
        waits=waits,
        certain=certain,
        queue=untrusted.label(job, names.CHIPS_QUEUE_LABEL),
        reclaimable=None if lease is None or ended else leases.reclaimable([lease], now).get(str(metadata.get("uid"))),
    )
