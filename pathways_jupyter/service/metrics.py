"""Prometheus metrics of services and sessions, made anew for every scrape.

Nothing is kept between two scrapes: a value whose source is out of date is not passed in, and its series ends. So no
series shows what was true once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pathways_jupyter.service.model import Service
from pathways_jupyter.service.podstate import State
from pathways_jupyter.service.session_figures import SessionFigures

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_SERVICE = ("cluster", "namespace", "service", "instance_type", "queue")
_SESSION = ("session", "user", "namespace", "service", "queue")
_COUNTERS: Mapping[str, tuple[str, str]] = {
    "waited": ("slice_wait_seconds", "Seconds waited for slices."),
    "reconnects": ("reconnects", "Proxies that were replaced."),
    "losses": ("slice_losses", "Slices that went down."),
    "recoveries": ("slice_recoveries", "Slices that came back."),
    "interruptions": ("interruptions", "Interruptions of the network that the relay outlived."),
}
"""Name and meaning of the metric of each figure."""


def of_services(pictures: Iterable[tuple[str, Service]]) -> Iterator[Metric]:
    """Yield the metrics of services.

    Args:
      pictures: The name of the cluster, and the picture of a service; a service that comes twice counts once.
    """
    from prometheus_client.core import GaugeMetricFamily

    slices = GaugeMetricFamily("pathways_slices", "Slices of a service by state.", labels=[*_SERVICE, "state"])
    free = GaugeMetricFamily("pathways_slices_free", "Slices that are ready and not held.", labels=_SERVICE)
    silent = GaugeMetricFamily(
        "pathways_slices_reclaimable", "Slices of silent sessions, kept until someone needs them.", labels=_SERVICE
    )
    for (cluster, namespace, name), each in {(at, each.namespace, each.name): each for at, each in pictures}.items():
        about = (cluster, namespace, name, each.instance_type, each.queue)
        counted = Counter(one.state for one in each.slices)
        for state in State:
            slices.add_metric([*about, state], counted[state])
        free.add_metric(about, each.free)
        silent.add_metric(about, each.reclaimable)
    yield from (slices, free, silent)


def of_sessions(sessions: Iterable[SessionFigures]) -> Iterator[Metric]:
    """Yield the metrics of sessions."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    # Prometheus refuses a series that comes twice, and a Lease may carry the labels of another session.
    listed = list({(each.session, each.user, each.namespace, each.service): each for each in sessions}.values())
    states = GaugeMetricFamily("pathways_sessions", "Sessions by state.", labels=["state"])
    for state, number in sorted(Counter(each.state for each in listed).items()):
        states.add_metric([state], number)
    chips = GaugeMetricFamily("pathways_session_chips", "Chips that the session holds.", labels=_SESSION)
    idle = GaugeMetricFamily("pathways_session_idle_seconds", "Since it sent anything to its proxy.", labels=_SESSION)
    counters = {
        name: CounterMetricFamily(f"pathways_session_{metric}", about, labels=_SESSION)
        for name, (metric, about) in _COUNTERS.items()
    }
    carried = CounterMetricFamily(
        "pathways_session_tunnel_bytes", "Bytes that the tunnel carried.", labels=[*_SESSION, "relay", "direction"]
    )
    for each in listed:
        about = (each.session, each.user, each.namespace, each.service, each.queue)
        chips.add_metric(about, each.chips if each.holds else 0)
        if each.idle is not None:
            idle.add_metric(about, each.idle)
        for name, counter in counters.items():
            counter.add_metric(about, getattr(each, name))
        if each.sent is not None and each.received is not None:
            relay = "yes" if each.relay else "no"
            carried.add_metric([*about, relay, "sent"], each.sent)
            carried.add_metric([*about, relay, "received"], each.received)
    yield from (states, chips, idle, *counters.values(), carried)
