"""The end of a session at an awkward moment, against the API server itself."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import JOBS
from pathways_jupyter.session import protocol, registry
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.supervisor.proxy_cycle import ProxyCycle
from pathways_jupyter.session.supervisor.session_log import SessionLog

DEADLINE = 60.0


def new_record(**about: Any) -> SessionRecord:
    session = registry.new_session_id()
    control, tunnel = map(str, registry.socket_paths(session))
    names = dict.fromkeys(("kernel_id", "notebook"), "")
    own = {"id": session, "pid": os.getpid(), "kernel_pid": os.getpid(), "socket": control, "tunnel": tunnel}
    own["log"] = str(registry.log_path(session))
    return SessionRecord(**names, **own, user="jane", created=0.0, **about)


async def test_the_end_waits_for_a_request_to_create_the_proxy_and_then_removes_it(config, monkeypatch, gone):
    begun, reached, create = asyncio.Event(), asyncio.Event(), objects.create

    async def slow(client, resource, *arguments, **options):
        if resource is JOBS:
            begun.set()
            await reached.wait()
        return await create(client, resource, *arguments, **options)

    async def listen() -> None:
        """Have no listener."""

    monkeypatch.setattr(objects, "create", slow)
    asked = config(1)
    log = SessionLog(new_record(config=protocol.config_to_json(asked)), asked)
    cycle = ProxyCycle(log, listen)
    async with asyncio.timeout(DEADLINE):
        running = asyncio.create_task(cycle.run(asyncio.Event()))
        await begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        ending = asyncio.create_task(cycle.end())
        # Without waiting it would find no Job to remove, and leave the one that comes then.
        done, _ = await asyncio.wait({ending}, timeout=1.0)
        assert not done
        reached.set()
        assert await ending == ""
    registry.remove(log.record)
    await asyncio.to_thread(gone, log.record.id)
