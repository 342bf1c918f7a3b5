"""The clock of the notebook's machine is set while a session runs."""

from __future__ import annotations

import asyncio

import pytest

from pathways_jupyter.base.events import SessionState
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import LEASES
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.session.kernel import session, spawn

pytestmark = pytest.mark.thorough

DEADLINE = 60.0
LEASE = 5.0

SITE = """
import os, time

def shifted(real=time.time):
    with open(os.environ["TEST_CLOCK"]) as file:
        return real() + float(file.read() or 0)

time.time = shifted
"""


async def until_renewed(cluster, name: str, *, times: int) -> None:
    """Return when a Lease was renewed so often; fails when it is deleted."""
    async with Client(load(str(cluster.kubeconfig))) as client, asyncio.timeout(DEADLINE):
        async for change in watch(client, LEASES, namespace="default", name=name):
            assert change.type is not ChangeType.DELETED, "the Lease was swept"
            if change.type is ChangeType.MODIFIED:
                times -= 1
                if not times:
                    return


@pytest.fixture
def clock(tmp_path, monkeypatch):
    """The file with the seconds by which the clocks of new processes are off; it may change while they run."""
    (tmp_path / "sitecustomize.py").write_text(SITE)
    path = tmp_path / "clock"
    path.write_text("0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TEST_CLOCK", str(path))
    # The one that stands by was started before.
    spawn.discard()
    yield path
    spawn.discard()


def test_a_session_survives_that_the_clock_is_set_back_and_forward(cluster, config, clock, gone):
    with session.connect(config(1, lease_seconds=LEASE)) as made:
        for jump in (-120, -25 * 3600, 24 * 3600):
            clock.write_text(str(jump))
            # The first one that is written in the past would end it.
            asyncio.run(until_renewed(cluster, made.record.job, times=3))
            assert made.state is SessionState.CONNECTED
    gone(made.id)
