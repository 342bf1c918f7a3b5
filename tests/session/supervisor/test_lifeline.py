"""The supervisor's two ways to know that its kernel has ended, and whom it then still answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pathways_jupyter.session.supervisor.supervisor import Lifeline, peer_pid

DEADLINE = 60.0

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs pidfd and SO_PEERCRED")


@pytest.fixture
def process():
    with subprocess.Popen(["sleep", "600"]) as made:
        yield made
        made.kill()


@linux
async def test_the_end_of_a_process_is_reported_once(process):
    died = asyncio.Queue()
    lifeline = Lifeline(process.pid, lambda: died.put_nowait(True))
    assert died.empty()
    process.kill()
    async with asyncio.timeout(DEADLINE):
        assert await died.get()
    lifeline.close()
    await asyncio.sleep(0)
    assert died.empty()


@linux
async def test_a_process_that_has_ended_before_is_reported_after_the_constructor(process):
    process.kill()
    process.wait(DEADLINE)
    died = asyncio.Event()
    Lifeline(process.pid, died.set)
    assert not died.is_set()
    async with asyncio.timeout(DEADLINE):
        await died.wait()


def watched(pid: int) -> bool:
    """Return whether this process has a descriptor of another one; other threads may have others, of files."""
    for each in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            if f"Pid:\t{pid}\n" in each.read_text():
                return True
    return False


@linux
async def test_one_that_is_closed_reports_nothing_and_keeps_no_descriptor(process):
    lifeline = Lifeline(process.pid, pytest.fail)
    assert watched(process.pid)
    lifeline.close()
    assert not watched(process.pid)
    process.kill()
    process.wait(DEADLINE)
    await asyncio.sleep(0)


async def test_without_a_process_nothing_is_watched():
    lifeline = Lifeline(0, pytest.fail)
    await asyncio.sleep(0)
    lifeline.close()


@linux
def test_the_process_at_the_other_end_of_a_socket_is_known():
    near, far = socket.socketpair()
    with near, far:
        assert peer_pid(near) == os.getpid()
