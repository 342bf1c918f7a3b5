"""Distance of a cluster, in words."""

from __future__ import annotations

import time

from pathways_jupyter.base.text import clock

_NEW_OPERATION = 6
"""Round trips of jaxlib's own for an operation that it has not seen: four before the result, two for its first use."""
_FELT_SECONDS = 0.02
"""A notebook beside the cluster gains nothing that is felt from less."""
_LATELY_SECONDS = 3600.0
"""A laptop may be on another network after longer than this."""


def to_cluster(seconds: float) -> str:
    """Say how long a round trip takes: ``104 ms to the cluster``; empty where that is not known."""
    return f"{max(1, round(seconds * 1000))} ms to the cluster" if seconds else ""


def last_upload(rate: float, measured: float) -> str:
    """Say how fast a long transfer went: ``last upload 18 Mbit/s at 14:02:31``; empty if there was none lately.

    Args:
      rate: Bytes a second.
      measured: When, in seconds since the epoch.
    """
    if not rate or time.time() - measured > _LATELY_SECONDS:
        return ""
    return f"last upload {8e-6 * rate:.3g} Mbit/s at {clock(measured)}"


def outlook(seconds: float) -> str:
    """Say what to expect of a round trip of so many seconds, in one sentence."""
    if seconds < _FELT_SECONDS:
        return f"{to_cluster(seconds)}: not felt in a notebook"
    return (
        f"{to_cluster(seconds)}: a new operation takes about {_NEW_OPERATION * seconds:.1f} s, later ones none; "
        "`pathways-jupyter lab up` puts the notebook beside it"
    )
