import asyncio
import socket

import certificates
import pytest

from pathways_jupyter.base import tasks


@pytest.fixture
def unused_port():
    """A loopback port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


@pytest.fixture(scope="session")
def self_signed():
    """A self-signed certificate, as PEM text."""
    certificate, _ = certificates.self_signed("test")
    return certificate


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts that were made, none of which takes time."""
    made, sleep = [], asyncio.sleep

    async def noted(seconds):
        made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(tasks.asyncio, "sleep", noted)
    return made
