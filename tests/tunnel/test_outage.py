"""Reports of streams that lose their carriers."""

from __future__ import annotations

import asyncio

import pytest

from pathways_jupyter.base.errors import ApiError, ClusterError, ConnectionLost
from pathways_jupyter.tunnel import outage
from pathways_jupyter.tunnel.carrier import PodPort
from pathways_jupyter.tunnel.outage import Outage
from pathways_jupyter.tunnel.resumable_stream import RelayClient

DEADLINE = 60.0
CUT = ConnectionLost("cut")


class Notes:
    """An outage, and what it has reported."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self.reloads: list[ClusterError] = []
        self.outage = Outage(self.said.put_nowait, lambda seconds: self.said.put_nowait("restored"), self._reload)

    async def _reload(self, error: ClusterError) -> None:
        self.reloads.append(error)


@pytest.fixture
def notes(monkeypatch) -> Notes:
    monkeypatch.setattr(outage, "NOTICE_SECONDS", 0.05)
    return Notes()


async def test_an_interruption_is_over_when_all_streams_have_a_carrier_again(notes):
    async with asyncio.timeout(DEADLINE):
        notes.outage.begin(1, CUT)
        notes.outage.begin(2, ClusterError("also cut"))
        assert await notes.said.get() == "cut"
        notes.outage.end(1)
        assert notes.said.empty()
        notes.outage.end(2)
        assert notes.said.get_nowait() == "restored"
        # A stream that ends later was not interrupted.
        notes.outage.end(2)
        assert notes.said.empty()


async def test_a_stream_that_is_lost_is_not_said_to_be_restored(notes):
    async with asyncio.timeout(DEADLINE):
        notes.outage.begin(1, CUT)
        assert await notes.said.get() == "cut"
        notes.outage.lose(1)
        notes.outage.end(1)
        assert notes.said.empty()
        notes.outage.begin(2, CUT)
        assert await notes.said.get() == "cut"
        notes.outage.end(2)
        assert notes.said.get_nowait() == "restored"


async def test_a_short_interruption_is_not_reported(notes):
    async with asyncio.timeout(DEADLINE):
        notes.outage.begin(1, CUT)
        notes.outage.end(1)
        # Begun later, so reported later than the first one would have been.
        notes.outage.begin(1, ClusterError("cut again"))
        assert await notes.said.get() == "cut again"
        notes.outage.close()


async def test_of_a_tunnel_that_was_closed_nothing_is_reported(notes):
    """Its streams may be without a carrier at that moment: the session ends while the network is cut."""
    tunnel, later = RelayClient(PodPort(None, "default", "proxy", 1), bytes(32), 60.0, notes.outage), Notes()
    async with asyncio.timeout(DEADLINE):
        notes.outage.begin(1, CUT)
        await tunnel.close()
        # Begun later, so reported later than the first one would have been.
        later.outage.begin(1, CUT)
        assert await later.said.get() == "cut"
    assert notes.said.empty()


@pytest.mark.parametrize(
    "refused",
    [
        ApiError("You are not logged in.", status=401, hint="Log in."),
        ClusterError("You are not logged in.", hint="Log in."),
    ],
    ids=["by the cluster", "by a plugin"],
)
async def test_credentials_that_stay_refused_are_reported_once(notes, monkeypatch, refused):
    monkeypatch.setattr(outage, "_RELOAD_AFTER_REFUSAL_SECONDS", 0.05)
    async with asyncio.timeout(DEADLINE):
        for _ in range(2):
            notes.outage.begin(1, CUT)
            assert await notes.said.get() == "cut"
            # It may be about an old token, in place of which another one is loaded.
            await notes.outage.attempt_failed(refused)
            assert notes.said.empty()
            while notes.said.empty():
                await asyncio.sleep(0.01)
                await notes.outage.attempt_failed(CUT)
                await notes.outage.attempt_failed(refused)
            assert notes.said.get_nowait() == "You are not logged in. Log in."
            await asyncio.sleep(0.06)
            await notes.outage.attempt_failed(refused)
            assert notes.said.empty()
            notes.outage.end(1)
            assert notes.said.get_nowait() == "restored"


async def test_the_cluster_is_loaded_again_now_and_then_and_sooner_after_a_refusal(notes, monkeypatch):
    refused = ApiError("expired", status=401)
    monkeypatch.setattr(outage, "_RELOAD_AFTER_REFUSAL_SECONDS", 0.0)
    notes.outage.begin(1, CUT)
    await notes.outage.attempt_failed(CUT)
    assert notes.reloads == []
    await notes.outage.attempt_failed(refused)
    assert notes.reloads == [refused]
    monkeypatch.setattr(outage, "_RELOAD_SECONDS", 0.0)
    await notes.outage.attempt_failed(CUT)
    assert notes.reloads == [refused, CUT]
    notes.outage.close()
