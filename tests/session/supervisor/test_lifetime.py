"""A proxy whose longest lifetime is over: the setting is named, and not what Kubernetes makes of it."""

from __future__ import annotations

import pytest
from asks import ask

from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.base.events import EventKind, SessionState
from pathways_jupyter.kube import objects
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


def test_a_session_whose_proxy_lived_its_time_says_so_once(config, cluster):
    with session.connect(config(1)) as made:
        since = made.event_count
        soon = {"spec": {"activeDeadlineSeconds": 1}}
        ask(cluster.kubeconfig, objects.patch, JOBS, made.record.job, soon, namespace="default")
        news = []
        for event in made.follow(since):
            news.append(event)
            if event.data.get("state") == SessionState.LOST and event.kind is EventKind.STATE:
                break
        shown = str(events.view(news).text)
        assert shown.count("lifetime of 1 s (--max-lifetime) is over") == 1
        assert "DeadlineExceeded" not in shown
        assert "Its arrays are lost." in shown
