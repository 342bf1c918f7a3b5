"""The server's time, after this machine's clock was set."""

import time

import pytest

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.clock import ServerClock, boot_seconds
from pathways_jupyter.kube.objects import NAMESPACES

JUMPS = [-120.0, -25 * 3600.0, 24 * 3600.0]


@pytest.mark.parametrize("jump", JUMPS)
async def test_setting_this_machines_clock_does_not_change_the_servers_time(client, monkeypatch, jump):
    real = time.time
    await objects.get(client, NAMESPACES, "default")
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    # Before the next answer, which would correct any clock.
    assert abs(client.now() - real()) < 60


def test_an_answer_corrects_the_clock_no_more_than_its_whole_seconds_allow(monkeypatch):
    at = 2524608000.0
    clock, sent = ServerClock(), boot_seconds()
    clock.correct("Sat, 01 Jan 2050 00:00:00 GMT", sent)
    assert at - 1 < clock.now() < at + 60
    first = clock.now() - boot_seconds()
    # What is within the bounds changes nothing, nor does what is no date.
    clock.correct("Sat, 01 Jan 2050 00:00:00 GMT", boot_seconds() - 30)
    clock.correct("", sent)
    clock.correct("Sat, 01 Jan 2050 00:00:00 nonsense words", sent)
    assert clock.now() - boot_seconds() == pytest.approx(first, abs=0.1)
    # The server's clock was set back.
    clock.correct("Fri, 31 Dec 2049 00:00:00 GMT", boot_seconds())
    assert at - 86401 < clock.now() < at - 86400 + 60
