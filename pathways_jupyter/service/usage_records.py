"""Chip-hours of the past, which the operator records: one ConfigMap a day in its namespace.

A session's Job and Lease are deleted with it, and Kubernetes keeps events for an hour. So the operator adds up what the
Leases say while they exist. A day's record has a line for each user, service, queue and namespace, with 24 hours in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object, Resource
from pathways_jupyter.service import names, untrusted

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PREFIX = "pathways-usage-"
KEPT_DAYS = 90
_LABELS = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.USAGE_LABEL: "day"}
_SELECTOR = ",".join(f"{key}={value}" for key, value in _LABELS.items())
_KEY = "shares.json"
_MOST_SHARES = 2000
"""In a day's record, which has to be below 1 MB; what does not fit is counted as that of `OTHERS`."""
OTHERS = "(others)"
_DAY_SECONDS, _HOUR_SECONDS = 86400, 3600
_MOST_CHIP_SECONDS = 1e12


class Share(NamedTuple):
    """Whose chips, and where from."""

    namespace: str
    user: str
    service: str
    queue: str


@dataclass(frozen=True)
class Recorded:
    """Chip-seconds within a span of time, in seconds since the epoch, by share."""

    since: float
    until: float
    shares: Mapping[Share, float]

    def by(self, field: str) -> dict[str, float]:
        """Return the chip-hours by a field of the shares, the largest first."""
        totals: dict[str, float] = {}
        for share, seconds in self.shares.items():
            name = str(getattr(share, field)) or "-"
            totals[name] = totals.get(name, 0.0) + seconds / _HOUR_SECONDS
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


Hours = dict[Share, list[float]]
"""Chip-seconds in each of the 24 hours of a day."""


class Pending:
    """Chip-seconds that are not recorded yet, by day, share and hour."""

    def __init__(self) -> None:
        self.days: dict[str, Hours] = {}

    def add(self, share: Share, chips: int, begin: float, end: float) -> None:
        """Add the time from `begin` to `end`, in seconds since the epoch, divided into hours; of it the last day.

        Longer than that, no session was silent and still there; but anyone may write a Lease with any time.
        """
        begin = max(begin, end - _DAY_SECONDS)
        while begin < end:
            until = min(end, (begin // _HOUR_SECONDS + 1) * _HOUR_SECONDS)
            hours = [0.0] * 24
            hours[int(begin % _DAY_SECONDS // _HOUR_SECONDS)] = chips * (until - begin)
            self.merge(day(begin), {share: hours})
            begin = until

    def merge(self, day: str, added: Hours) -> None:
        """Add what could not be recorded."""
        _merge(self.days.setdefault(day, {}), added)


def _merge(into: Hours, added: Hours) -> None:
    for share, hours in added.items():
        before = into.get(share, [0.0] * 24)
        into[share] = [one + other for one, other in zip(before, hours, strict=True)]


async def write(client: Client, namespace: str, day: str, added: Hours) -> None:
    """Add to the record of a day; of two writers at a time one fails.

    Raises:
      ApiError: Another one has written meanwhile (409), or it is forbidden.
      ClusterError: The server could not be reached.
    """
    name = f"{PREFIX}{day}"
    found = await objects.find(client, CONFIG_MAPS, name, namespace=namespace)
    shares = _shares(found) if found is not None else {}
    for share, hours in added.items():
        fits = share in shares or len(shares) < _MOST_SHARES
        _merge(shares, {share if fits else Share(share.namespace, OTHERS, "", ""): hours})
    lines = [[*share, [round(each) for each in hours]] for share, hours in sorted(shares.items())]
    body: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
        "data": {_KEY: json.dumps(lines, separators=(",", ":"))},
    }
    if found is None:
        await objects.create(client, CONFIG_MAPS, body, namespace=namespace)
    else:
        # So that nothing is lost of what another one adds between the reading and this.
        body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        await client.request("PUT", CONFIG_MAPS.item(namespace, name), body=body, repeat=False)


async def delete_old(client: Client, namespace: str) -> None:
    """Delete the records of days that are no longer kept."""
    oldest = f"{PREFIX}{day(client.now() - KEPT_DAYS * _DAY_SECONDS)}"
    for each in (await objects.list_(client, CONFIG_MAPS, namespace=namespace, labels=_SELECTOR)).items:
        if (name := str(each["metadata"]["name"])) < oldest:
            await objects.delete(client, CONFIG_MAPS, name, namespace=namespace)


async def fetch(client: Client, operator: str, namespace: str, seconds: float) -> Recorded | None:
    """Return what was recorded of the last `seconds`, to whole hours; None if there is no record at all.

    Args:
      operator: The operator's namespace.
      namespace: Only sessions in this namespace; empty for all.

    Raises:
      ApiError: Listing ConfigMaps there is forbidden.
    """
    found = (await objects.list_(client, CONFIG_MAPS, namespace=operator, labels=_SELECTOR)).items
    return recorded(found, namespace=namespace, since=client.now() - seconds, until=client.now()) if found else None


def recorded(found: Iterable[Object], *, namespace: str, since: float, until: float) -> Recorded:
    """Add up the records of some days."""
    since -= since % _HOUR_SECONDS
    totals: dict[Share, float] = {}
    for each in found:
        try:
            begin = datetime.strptime(str(each["metadata"]["name"]).removeprefix(PREFIX), "%Y-%m-%d")
        except ValueError:
            continue
        midnight = begin.replace(tzinfo=UTC).timestamp()
        for share, hours in _shares(each).items():
            inside = sum(value for hour, value in enumerate(hours) if since <= midnight + hour * _HOUR_SECONDS < until)
            if inside and namespace in {"", share.namespace}:
                totals[share] = totals.get(share, 0.0) + inside
    return Recorded(since, until, totals)


def _shares(record: Object) -> Hours:
    """Return the lines of a day's record that are what this package writes."""
    try:
        lines: Any = json.loads((record.get("data") or {}).get(_KEY) or "[]")
    except (ValueError, RecursionError):
        return {}
    shares: Hours = {}
    for line in lines if isinstance(lines, list) else ():
        match line:
            case [str(), str(), str(), str(), [*hours]] if len(hours) == 24:
                numbers = [untrusted.number(each, _MOST_CHIP_SECONDS) or 0.0 for each in hours]
                shares[Share(*line[:4])] = numbers
    return shares


def day(at: float) -> str:
    """Return the day in UTC, as it is in the name of a record; `at` is in seconds since the epoch."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))
