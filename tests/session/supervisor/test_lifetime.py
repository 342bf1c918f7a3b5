"""A proxy whose longest lifetime is over: the setting is named, and not what Kubernetes makes of it."""

from __future__ import annotations

import asyncio

import pytest

from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.base.events import EventKind, SessionState
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS
from pathways_jupyter.render import events
from pathways_jupyter.session.kernel import session


def test_a_proxy_that_ends_before_it_can_be_used_names_the_setting(config):
    # No node has this label, so that the pod only waits.
    connecting = session.attempt_connect(config(1, max_lifetime=1.0, proxy_node_selector=("nowhere=1",)))
    with pytest.raises(ServiceError, match=r"lifetime of 1 s \(--max-lifetime\) is over") as refused:
        list(connecting)
    assert "--max-lifetime" in refused.value.hint
    assert "slices" not in refused.value.hint


async def end_soon(cluster, job: str) -> None:
    """Let the lifetime of a proxy be over."""
    async with Client(load(str(cluster.kubeconfig))) as client:
        await objects.patch(client, JOBS, job, {"spec": {"activeDeadlineSeconds": 1}}, namespace="default")


@pytest.mark.thorough
def test_a_session_whose_proxy_lived_its_time_says_so_once(config, cluster):
    with session.connect(config(1)) as made:
        since = made.event_count
        asyncio.run(end_soon(cluster, made.record.job))
        news = []
        for event in made.follow(since):
            news.append(event)
            if event.data.get("state") == SessionState.LOST and event.kind is EventKind.STATE:
                break
        shown = str(events.view(news).text)
        assert shown.count("lifetime of 1 s (--max-lifetime) is over") == 1
        assert "DeadlineExceeded" not in shown
        assert "Its arrays are lost." in shown
