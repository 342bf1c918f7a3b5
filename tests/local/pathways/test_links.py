"""Links between programs, a proxy's requests for slices, and what is granted, on unix sockets of this process."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.tpu import parse_instance_type
from pathways_jupyter.local.pathways import links, resource_manager, slice_requests
from pathways_jupyter.local.pathways.links import Link, LinkError
from pathways_jupyter.local.pathways.resource_manager import ResourceManager
from pathways_jupyter.local.pathways.slice_requests import PlacedSlice, SliceRequester

DEADLINE = 30.0
PORT = 29001
ADDRESS = f"rm.pathways:{PORT}"
KIND = "tpuv6e:2x2"


@pytest.fixture
def sockets(tmp_path, monkeypatch):
    """Names and sockets of one pod, which is this process; returns the directory of the names."""
    (tmp_path / "n").mkdir()
    (tmp_path / "s").mkdir()
    monkeypatch.setenv(links.NAMES_VARIABLE, str(tmp_path / "n"))
    monkeypatch.setenv(links.SOCKETS_VARIABLE, str(tmp_path / "s"))
    (tmp_path / "n" / "rm.pathways").symlink_to(tmp_path / "s")
    return tmp_path / "n"


@pytest.fixture
async def serve(sockets):
    """Serve links until the test ends; returns the queue in which they arrive."""
    accepted: asyncio.Queue[Link] = asyncio.Queue()
    ended = asyncio.Event()

    async def accept(link):
        await accepted.put(link)
        await ended.wait()

    server = await links.listen(PORT, accept)
    async with asyncio.timeout(DEADLINE):
        yield accepted
        ended.set()
        server.close()


@contextlib.asynccontextmanager
async def connected(accepted):
    """Both ends of one link."""
    connections = links.connections(ADDRESS)
    async with contextlib.aclosing(connections):
        yield await anext(connections), await accepted.get()


def test_a_name_is_resolved_to_the_socket_of_its_pod(sockets):
    assert links.resolve(ADDRESS) == links.own_socket(PORT)
    with pytest.raises(OSError, match="other"):
        links.resolve(f"other.pathways:{PORT}")


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:-1"])
def test_an_address_is_a_host_and_a_port(address):
    with pytest.raises(ConfigError, match="is not of the form HOST:PORT"):
        links.split_address(address)


def test_outside_of_pods_there_is_no_socket(monkeypatch):
    monkeypatch.delenv(links.SOCKETS_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="runs in pods of the embedded cluster only"):
        links.own_socket(PORT)


async def test_messages_arrive_whole_and_in_order(serve):
    async with connected(serve) as (ours, theirs):
        ours.send("hello", text="x" * 100_000)
        ours.send("more", number=2)
        assert await theirs.receive() == {"type": "hello", "text": "x" * 100_000}
        assert await theirs.receive() == {"type": "more", "number": 2}
        theirs.send("welcome")
        assert await ours.receive() == {"type": "welcome"}
        assert ours.accepted


async def test_heartbeats_are_sent_and_are_no_messages(serve, monkeypatch):
    monkeypatch.setattr(links, "HEARTBEAT_SECONDS", 0.01)
    reader, writer = await asyncio.open_unix_connection(links.own_socket(PORT))
    link = await serve.get()
    beat = await reader.readline()
    assert json.loads(beat) == {"type": "beat"}
    writer.write(beat * 3 + b'{"type": "hello"}\n')
    assert await link.receive() == {"type": "hello"}
    writer.close()


async def test_a_silent_peer_is_lost(serve, monkeypatch):
    monkeypatch.setattr(links, "SILENCE_SECONDS", 0.01)
    _, writer = await asyncio.open_unix_connection(links.own_socket(PORT))
    link = await serve.get()
    with pytest.raises(LinkError, match=r"silent for 0.01 s"):
        await link.receive()
    assert not link.accepted
    writer.close()


async def test_the_end_of_a_peer_is_noticed(serve):
    async with connected(serve) as (ours, theirs):
        await ours.close()
        with pytest.raises(LinkError, match="the connection was closed"):
            await theirs.receive()


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\r\n", b"[1]\n", b"{}\n", b"x" * 2_000_000 + b"\n"])
async def test_a_peer_that_sends_anything_but_messages_is_lost(serve, line):
    _, writer = await asyncio.open_unix_connection(links.own_socket(PORT))
    link = await serve.get()
    writer.write(line)
    with pytest.raises(LinkError):
        await link.receive()
    writer.close()


class Listener:
    """Records what a proxy learns of its slices."""

    def __init__(self):
        self.calls = asyncio.Queue()

    def changed(self, slices):
        self.calls.put_nowait(["up" if each.up else "down" for each in slices])

    def placed(self):
        self.calls.put_nowait("placed")

    async def next(self, count):
        return [await self.calls.get() for _ in range(count)]


def state(virtual: int, *, up: bool = True):
    return {
        "slice": 4 + virtual,
        "job": f"j{virtual}",
        "up": up,
        "sidecars": [f"/s{virtual}"],
    }


async def test_a_proxy_follows_its_slices_and_asks_for_the_same_ones_again(serve, caplog):
    caplog.set_level("INFO")
    listener = Listener()
    requester = SliceRequester(ADDRESS, "p", [parse_instance_type(KIND)] * 2, listener)
    running = asyncio.create_task(requester.run())
    manager = await serve.get()
    assert await manager.receive() == {
        "type": "hello",
        "role": "proxy",
        "name": "p",
        "slices": [KIND, KIND],
        "held": [],
    }

    def change(virtual, why="", **states):
        manager.send("changed", virtual=virtual, why=why, **state(virtual, **states))

    manager.send("waiting", reason="others hold them")
    manager.send("placed", slices=[state(0), state(1, up=False)])
    assert await listener.next(2) == [["up", "down"], "placed"]
    assert requester._slices[1] == PlacedSlice(5, "j1", up=False)
    change(1)
    assert await listener.next(1) == [["up", "up"]]
    change(0, "lost w (killed)", up=False)
    assert await listener.next(1) == [["down", "up"]]
    await manager.close()
    again = await serve.get()
    assert (await again.receive())["held"] == [4, 5]
    again.send("placed", slices=[state(0), state(1)])
    assert await listener.next(2) == [["up", "up"], "placed"]
    assert requester._slices[1] == PlacedSlice(5, "j1", up=True, sidecars=("/s1",))
    again.send("refused", message="no such slices")
    assert await running == "no such slices"
    said = [each.message.replace(f" ({KIND})", "") for each in caplog.records if "lice " in each.message]
    assert said == [
        "Transition slice 0 unplaced -> placed on j0",
        "Transition slice 1 unplaced -> placed on j1",
        "Transition slice 0 placed -> unplaced from j0: lost w (killed)",
        "Transition slice 0 unplaced -> placed on j0",
    ]


async def test_a_proxy_without_slices_of_its_own_asks_which_there_are(serve):
    asking = asyncio.create_task(slice_requests.inventory(ADDRESS))
    lost = await serve.get()
    await lost.close()
    manager = await serve.get()
    assert await manager.receive() == {"type": "hello", "role": "inventory"}
    manager.send("inventory", slices=[KIND, "tpuv6e:2x4"])
    assert await asking == [parse_instance_type(KIND), parse_instance_type("tpuv6e:2x4")]


@contextlib.asynccontextmanager
async def new_resource_manager():
    """A proxy that had its only slice from another one before, and a worker of that slice: their links to it."""
    serving = asyncio.create_task(ResourceManager([parse_instance_type(KIND)]).serve(PORT))
    ends = [links.connections(ADDRESS) for _ in range(2)]
    async with asyncio.timeout(DEADLINE), contextlib.aclosing(ends[0]), contextlib.aclosing(ends[1]):
        proxy, worker = [await anext(each) for each in ends]
        proxy.send("hello", role="proxy", name="p", slices=[KIND], held=[0])
        yield proxy, worker
    serving.cancel()


async def test_a_slice_is_not_lost_because_its_worker_returns_after_its_proxy(sockets):
    async with new_resource_manager() as (proxy, worker):
        assert (await proxy.receive())["reason"] == "slice 0 is not ready"
        worker.send("hello", role="worker", host={"slice_index": 0, "index": 0, "job": "j", "pod": "w"})
        assert (await proxy.receive())["slices"][0]["up"]


async def test_a_slice_is_lost_whose_worker_does_not_return(sockets, monkeypatch):
    monkeypatch.setattr(resource_manager, "_GATHERING_SECONDS", 0.01)
    async with new_resource_manager() as (proxy, _):
        while (message := await proxy.receive())["type"] == "waiting":
            pass
        assert not message["slices"][0]["up"]
