"""A proxy whose session is silent: kept with a relay, until another session needs its slices."""

from __future__ import annotations

import time

import psutil

from pathways_jupyter.base.events import EventKind, SessionState
from pathways_jupyter.render import slices
from pathways_jupyter.render.view import View
from pathways_jupyter.service import status
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel import session
from pathways_jupyter.session.protocol import Method

DEADLINE = 60.0
LEASE = 2.0


def reclaimable(config) -> View:
    """The slices, once some of them are reclaimable; the lease of the session runs out within seconds."""
    deadline = time.monotonic() + DEADLINE
    while not (found := clusters.ask(config, lambda client, namespace: status.fetch(client, namespace)))[0].reclaimable:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return slices.view(found)


def test_a_silent_session_is_taken_by_the_next_one_and_both_learn_of_it(config, hold, gone):
    link = hold(2, relay=True, lease_seconds=LEASE)
    record = link.answer(link.ask(Method.STATUS), patience=DEADLINE)
    supervisor = psutil.Process(record["pid"])
    supervisor.suspend()
    try:
        shown = reclaimable(config(1))
        assert "2 reclaimable" in shown.text
        assert "(holder.ipynb), silent for" in shown.text
        # It waits for the lease to run out; the operator of the cluster leaves the proxy alone after that.
        with session.connect(config(1, wait=DEADLINE)) as made:
            (taken,) = (event for event in made.events() if event.data.get("session") == link.session)
            assert taken.message.startswith("Reclaimed slices from ")
            assert "work/holder.ipynb (no heartbeat for" in taken.message
            since = link.count
            supervisor.resume()
            lost = next(event for event in link.watch(since) if event.kind is EventKind.PROXY_LOST)
            assert f"taken by {made.record.user}" in lost.message
            assert "silent for longer than its lease" in lost.message
    finally:
        supervisor.resume()
    assert made.state is SessionState.CLOSED
    gone(made.id)
