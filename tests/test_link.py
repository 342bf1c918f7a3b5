"""The link that tests and benches measure with counts what a client has to wait for."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from benchmarks.link import Exchange, Link, Traffic
from pathways_jupyter.kube import auth
from pathways_jupyter.kube.client import Client

DELAY_SECONDS = 0.05


@pytest.fixture
async def link(cluster):
    with Link(cluster, delay=DELAY_SECONDS) as made:
        yield made


@pytest.fixture
async def client(link, tmp_path):
    async with Client(auth.load(str(link.write(tmp_path / "kubeconfig")))) as made:
        yield made


async def test_a_first_request_waits_for_tcp_tls_and_its_answer_and_the_next_one_only_for_its_answer(link, client):
    traffic = link.count()
    await client.get("/version")
    assert (traffic.connections, traffic.stages) == (1, 3)
    traffic = link.count()
    await client.get("/version")
    assert (traffic.connections, traffic.stages, traffic.requests) == (0, 1, 1)


async def test_the_end_of_a_handshake_is_no_request_also_where_the_client_pauses_after_it(link):
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    traffic = link.count()
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port, ssl=unchecked)
    # The server's answer to the end of the handshake, its session tickets, arrives meanwhile.
    await asyncio.sleep(4 * DELAY_SECONDS)
    writer.write(b"GET /version HTTP/1.1\r\nHost: there\r\nConnection: close\r\n\r\n")
    await reader.read()
    writer.close()
    assert (traffic.connections, traffic.stages, traffic.requests) == (1, 3, 1)


async def test_requests_at_once_are_one_stage_and_one_after_the_other_are_several(link, client):
    await asyncio.gather(*(client.get("/version") for _ in range(3)))
    seen = []
    # A machine that stands still for a round trip in between sends them one after the other.
    while len(seen) < 3 and (0, 1, 3) not in seen:
        traffic = link.count()
        await asyncio.gather(*(client.get("/version") for _ in range(3)))
        seen.append((traffic.connections, traffic.stages, traffic.requests))
    assert seen[-1] == (0, 1, 3), seen
    traffic = link.count()
    for _ in range(3):
        await client.get("/version")
    assert (traffic.connections, traffic.stages, traffic.requests) == (0, 3, 3)


async def test_a_large_answer_arrives_whole_over_a_slow_link(link, client):
    whole = await client.get("/openapi/v3/api/v1")
    link.shape(delay=DELAY_SECONDS, down=4e6)
    assert await client.get("/openapi/v3/api/v1") == whole


def test_stages_are_the_longest_chain_of_exchanges():
    traffic = Traffic(1, [Exchange(0, 2), Exchange(1, 3), Exchange(2, 4), Exchange(3, 6), Exchange(4, 5)])
    assert traffic.stages == 3
    assert traffic.requests == 3
