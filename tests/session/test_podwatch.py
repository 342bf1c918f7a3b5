"""Following a proxy's pod, and ceasing to."""

from __future__ import annotations

import asyncio

import pytest

from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.session.podwatch import PodWatch


async def test_who_is_cancelled_while_a_watch_closes_is_cancelled(cluster):
    """Else a supervisor whose kernel ends while it gives up a lost proxy would go on for ever."""
    async with Client(load(str(cluster.kubeconfig))) as client:
        watch = PodWatch(client, "default", "nobody=here", progress=lambda words: None)
        closing = asyncio.create_task(watch.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
