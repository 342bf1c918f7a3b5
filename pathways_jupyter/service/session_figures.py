"""The figures of one session for those who operate a cluster: its state, waits, reconnects and bytes.

Its supervisor writes them on the session's Lease with every renewal, which costs no request of its own. So a
client that may read Leases has the figures of all sessions, whichever machine they run on.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Self

from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import leases, names


@dataclass(frozen=True)
class SessionFigures:
    """The figures.

    Attributes:
      waited: Seconds that it has waited for taken slices.
      reconnects: How many proxies it had before the present one.
      sent: Bytes that its tunnel has carried to the proxy; None without a tunnel.
      received: Bytes from the proxy.
    """

    session: str
    user: str
    namespace: str
    service: str
    state: str
    waited: float
    reconnects: int
    sent: int | None = None
    received: int | None = None

    def to_json(self) -> str:
        """Return the figures as the value of the Lease's annotation."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def of_lease(cls, lease: Object, now: float) -> Self | None:
        """Return the figures on `lease`; None if it has none, or has expired, so that they are out of date."""
        if leases.is_stale(lease, now):
            return None
        try:
            value = json.loads((lease["metadata"].get("annotations") or {})[names.FIGURES_ANNOTATION])
            known = {each.name: value[each.name] for each in dataclasses.fields(cls) if each.name in value}
            numbers = [known["waited"], known["reconnects"], known.get("sent") or 0, known.get("received") or 0]
            if not all(isinstance(each, (int, float)) for each in numbers):
                return None
            labels = lease["metadata"].get("labels") or {}
            # Who it belongs to is said by what the API server checks, not by what the session writes.
            return cls(
                **{
                    **known,
                    "session": str(labels.get(names.SESSION_LABEL, "")),
                    "user": str(labels.get(names.USER_LABEL, "")),
                    "namespace": str(lease["metadata"].get("namespace") or ""),
                    "service": str(known["service"]),
                    "state": str(known["state"]),
                }
            )
        except (KeyError, TypeError, ValueError):
            return None
