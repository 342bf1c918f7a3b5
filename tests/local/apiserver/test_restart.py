from __future__ import annotations

import asyncio

import aiohttp
import pytest

from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.apiserver.app import ApiServer

PODS = "/api/v1/namespaces/default/pods"


async def test_a_server_that_stops_drops_watches_logs_and_tunnels(bench, echo) -> None:
    await bench.running_pod("p")
    watching = await bench.request("GET", f"{PODS}?watch=1")
    await watching.content.readline()
    following = await bench.request("GET", f"{PODS}/p/log?follow=1")
    await following.content.readline()
    tunnel = await bench.websocket(f"{PODS}/p/portforward?ports={echo}", "v4.channel.k8s.io")
    await tunnel.receive_bytes()

    await bench.server.stop()

    for response in (watching, following):
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(response.content.read(), 30)
    while not tunnel.closed:
        await asyncio.wait_for(tunnel.receive(), 30)
    assert bench.server.connections == 0


async def test_the_next_server_goes_on_where_the_last_one_stopped(bench) -> None:
    pod = await bench.running_pod("p", app="web")
    ca, port, revision = bench.server.ca.read_bytes(), bench.server.port, bench.store.revision

    await bench.restart()

    assert (bench.server.ca.read_bytes(), bench.server.port, bench.store.revision) == (ca, port, revision)
    assert (await bench.call("GET", f"{PODS}/p"))[1]["metadata"]["uid"] == pod["metadata"]["uid"]
    code, made = await bench.call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "after"}})
    assert (code, int(made["metadata"]["resourceVersion"])) == (201, revision + 1)


async def test_stopping_twice_is_stopping_once(bench) -> None:
    await bench.server.stop()
    await bench.server.stop()


async def test_a_port_that_is_taken_is_an_error(bench) -> None:
    second = ApiServer(bench.store, bench.runtime, directory=bench.directory, port=bench.server.port)

    with pytest.raises(LocalClusterError, match=f"cannot listen on 127.0.0.1:{bench.server.port}"):
        await second.start()
