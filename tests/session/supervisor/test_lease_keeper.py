"""A computer that slept: what is said of it on waking."""

from __future__ import annotations

import psutil
import pytest
from asks import ask

from pathways_jupyter.base.events import EventKind, SessionState
from pathways_jupyter.kube.objects import JOBS
from pathways_jupyter.kube.watch import until_gone
from pathways_jupyter.service.names import SESSION_LABEL
from pathways_jupyter.session.kernel import session

pytestmark = pytest.mark.thorough

DEADLINE = 60.0
LEASE = 5.0
"""Seconds; a supervisor that has to wait for a processor renews it in time."""


@pytest.mark.parametrize(
    ("settings", "sentence", "option"),
    [
        ({}, f"its lease expires after {LEASE:.0f} s, and the proxy was removed", "--lease-seconds 600"),
        (
            {"relay": True, "keep": 8.0},
            "arrays are kept for 8 s without a connection, and the proxy was removed",
            "--keep 600",
        ),
    ],
    ids=["plain", "relay"],
)
def test_a_session_whose_lease_ran_out_while_it_stood_still_says_so(config, cluster, gone, settings, sentence, option):
    with session.connect(config(1, lease_seconds=LEASE, **settings)) as made:
        supervisor = psutil.Process(made.record.pid)
        since = made.event_count
        supervisor.suspend()
        try:
            swept = {"namespace": "default", "labels": f"{SESSION_LABEL}={made.id}"}
            ask(cluster.kubeconfig, until_gone, JOBS, **swept)
        finally:
            supervisor.resume()
        lost = next(event for event in made.follow(since) if event.kind is EventKind.PROXY_LOST)
        assert "The session was silent for" in lost.message
        assert sentence in lost.message
        assert f"Connect with {option} " in lost.message
        made.reconnect()
        assert made.state is SessionState.CONNECTED
    gone(made.id)
