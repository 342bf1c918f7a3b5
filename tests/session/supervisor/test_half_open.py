"""The network swallows everything and closes nothing: a cable that was pulled, a firewall that forgot a connection."""

from __future__ import annotations

import contextlib
import socket

import pytest

from benchmarks.link import Link
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.kube import websocket
from pathways_jupyter.session.kernel import session

LONGEST_SECONDS = 25.0
"""Far more than it takes, and less than the 40 s for which a session went on as if nothing had happened."""


@pytest.mark.thorough
def test_a_connection_without_a_relay_on_which_nothing_comes_back_is_noticed(cluster, config, tmp_path, gone):
    with Link(cluster.kubeconfig) as link:
        kubeconfig = link.write(tmp_path / "kubeconfig")
        with (
            session.connect(config(1, kubeconfig=str(kubeconfig), relay=False)) as made,
            socket.socket(socket.AF_UNIX) as program,
        ):
            since = made.event_count
            program.settimeout(LONGEST_SECONDS)
            program.connect(made.record.tunnel)
            # The first bytes of a gRPC server show that the connection reaches the proxy.
            assert program.recv(1)
            link.freeze()
            with contextlib.suppress(ConnectionError):
                while program.recv(4096):
                    pass
            lost = next(event for event in made.follow(since) if event.kind is EventKind.PROXY_LOST)
            assert "stopped answering" in lost.message
            link.thaw()
        gone(made.id)


def test_a_dead_server_is_noticed_within_ten_seconds():
    assert websocket.PING_SECONDS * (1 + websocket.UNANSWERED_PINGS) < 10
