"""The figures of one session for those who operate a cluster: its state and chips, what it went through, its bytes.

Its supervisor writes them on the session's Lease with every renewal, which costs no request of its own. So a
client that may read Leases has the figures of all sessions, whichever machine they run on.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Self

from pathways_jupyter.base.events import SessionState
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import leases, names, untrusted

_MOST_COUNT = 1_000_000_000
_MOST_BYTES = 2**62
_MOST_CHIPS = 1_000_000
_COUNTS = {"chips": _MOST_CHIPS, "losses": _MOST_COUNT, "recoveries": _MOST_COUNT, "interruptions": _MOST_COUNT}


@dataclass(frozen=True)
class SessionFigures:
    """The figures.

    Attributes:
      queue: The queue of Kueue's from which its service has its chips; empty for none.
      waited: Seconds that it has waited for taken slices.
      reconnects: How many proxies it had before the present one.
      chips: Chips of the slices that it asked for.
      losses: How often a slice went down.
      recoveries: How often one came back.
      interruptions: How often the network was interrupted, and the relay kept its arrays.
      sent: Bytes that its tunnel has carried to the proxy; None without a tunnel.
      received: Bytes from the proxy.
      idle: Seconds since it has sent anything to the proxy; None without a tunnel.
      relay: Whether the tunnel goes through a relay.
    """

    session: str
    user: str
    namespace: str
    service: str
    state: SessionState
    waited: float
    reconnects: int
    chips: int = 0
    losses: int = 0
    recoveries: int = 0
    interruptions: int = 0
    sent: int | None = None
    received: int | None = None
    idle: float | None = None
    relay: bool = False
    queue: str = ""

    @property
    def holds(self) -> bool:
        """Return whether it has slices, rather than waiting for them."""
        return self.state.is_connected

    def to_json(self) -> str:
        """Return the figures as the value of the Lease's annotation."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"), allow_nan=False)

    @classmethod
    def of_lease(cls, lease: Object, now: float) -> Self | None:
        """Return the figures on `lease`; None if it has none, or has expired, so that they are out of date."""
        return None if leases.is_stale(lease, now) else cls.read(lease)

    @classmethod
    def read(cls, lease: Object) -> Self | None:
        """Return the figures on `lease`; None if it has none, or one of them is not what this package writes."""
        value = untrusted.mapping(untrusted.raw(lease, names.FIGURES_ANNOTATION))
        state = next((each for each in SessionState if each == value.get("state")), None)
        waited = untrusted.number(value.get("waited"), untrusted.LONGEST_SECONDS)
        reconnects = untrusted.count(value.get("reconnects"), _MOST_COUNT)
        if state is None or waited is None or reconnects is None:
            return None
        # Who it belongs to is said by what the API server checks, not by what the session writes.
        whose = untrusted.SessionLabels.of(lease)
        sent, received = (untrusted.count(value.get(name), _MOST_BYTES) for name in ("sent", "received"))
        return cls(
            session=whose.session,
            user=whose.user,
            namespace=str(lease["metadata"].get("namespace") or ""),
            service=untrusted.text(value.get("service")),
            state=state,
            waited=waited,
            reconnects=reconnects,
            # An older version writes fewer.
            **{name: untrusted.count(value.get(name), most) or 0 for name, most in _COUNTS.items()},
            sent=sent,
            received=received,
            idle=untrusted.number(value.get("idle"), untrusted.LONGEST_SECONDS),
            relay=value.get("relay") is True,
            queue=untrusted.label(lease, names.CHIPS_QUEUE_LABEL),
        )
