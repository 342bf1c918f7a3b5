"""Expiry of Events, which nothing else would ever remove."""

from __future__ import annotations

import asyncio
import time

from pathways_jupyter.local.apiserver.columns import seconds_of
from pathways_jupyter.local.apiserver.resources import EVENTS, Object
from pathways_jupyter.local.apiserver.store import Store

KEPT_SECONDS = 3600.0
"""As long as a real API server keeps them."""
_SWEEP_SECONDS = 60.0


def expire_events(store: Store, now: float) -> int:
    """Remove the events that were last seen more than :data:`KEPT_SECONDS` before `now`; return their number."""
    old = [event for event in store.list(EVENTS) if _last_seen(event, now) < now - KEPT_SECONDS]
    for event in old:
        store.delete(EVENTS, event["metadata"]["namespace"], event["metadata"]["name"], grace=0)
    return len(old)


async def keep_expiring(store: Store) -> None:
    """Call :func:`expire_events` periodically, until cancelled."""
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        expire_events(store, time.time())


def _last_seen(event: Object, now: float) -> float:
    stamps = (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return next((seconds for stamp in stamps if (seconds := seconds_of(stamp)) is not None), now)
