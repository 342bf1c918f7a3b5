"""Hosts that pass the files on to each other: who is answered, and what happens when one fails."""

import contextlib
import json
import os
import select
import socket
import ssl
import tempfile
import time
import zlib
from pathlib import Path

import psutil
import pytest
import sshd
from runs import DEADLINE

from pathways_jupyter.multihost import relay
from pathways_jupyter.multihost.hostsession import HostSession
from pathways_jupyter.multihost.relay import one_time_certificate
from pathways_jupyter.multihost.remote.content_store import Store, hasher
from pathways_jupyter.multihost.remote.frames import encode
from pathways_jupyter.multihost.remote.share import Fetch, FetchError, Share
from pathways_jupyter.multihost.run_events import Phase

HOSTS = 6


@pytest.fixture(scope="module")
def farm():
    with tempfile.TemporaryDirectory(prefix="pj-") as name, sshd.farm(Path(name) / "farm", HOSTS) as made:
        yield made


@pytest.fixture
def large(lab):
    """More than is worth passing on, in some files."""
    for number in range(8):
        (lab.code / f"part{number}").write_bytes(os.urandom(relay.WORTH_BYTES))
    return "cat part* | sha256sum"


def same_everywhere(done, count):
    assert done.code == 0, (done.notes, done.ended)
    assert len(done.lines) == count
    assert len({tuple(lines) for lines in done.lines.values()}) == 1


async def test_the_client_sends_to_two_hosts_and_these_to_the_others(lab, large):
    done = await lab.run(large, HOSTS, relay=True)
    same_everywhere(done, HOSTS)
    assert "4 hosts received the files from other hosts." in done.notes
    # A small change goes to all of them from here: that is one round trip.
    (lab.code / "main.py").write_text("print('changed')\n")
    again = await lab.run("python3 main.py", HOSTS, relay=True)
    assert again.lines == {f"0-{number}": ["changed"] for number in range(HOSTS)}
    assert not any("other hosts" in note for note in again.notes)


async def test_when_a_host_that_passes_the_files_on_dies_others_take_its_place(lab, large, monkeypatch):
    fetch, killed = HostSession.fetch, []

    async def after_a_death(self, address, port, *rest):
        if not killed:
            killed.append(port)
            listener(lab, port).kill()
        await fetch(self, address, port, *rest)

    monkeypatch.setattr(HostSession, "fetch", after_a_death)
    done = await lab.run(large, HOSTS, relay=True)
    same_everywhere(done, HOSTS)
    # One or two hosts were about to fetch from it.
    assert any("could not fetch the files from 127.0.0.1" in note for note in done.notes)
    assert any(note.endswith("received the files from other hosts.") for note in done.notes)
    assert any(Phase.RECONNECTING in phases for phases in done.phases.values()), "it was not used again"


async def test_hosts_that_do_not_reach_each_other_receive_everything_from_here(lab, large, monkeypatch):
    fetch = HostSession.fetch

    async def with_another_certificate(self, address, port, secret, received):
        await fetch(self, address, port, one_time_certificate(), received)

    monkeypatch.setattr(HostSession, "fetch", with_another_certificate)
    done = await lab.run(large, HOSTS, relay=True)
    same_everywhere(done, HOSTS)
    assert any("no secure connection (certificate verify failed)" in note for note in done.notes)
    assert "The hosts do not reach each other, so that all is sent from here." in done.notes


def listener(lab, port):
    """The process on a host that listens at `port`."""
    for host in lab.farm.hosts:
        for each in host.processes():
            with contextlib.suppress(psutil.Error):
                if any(one.laddr.port == port and one.status == psutil.CONN_LISTEN for one in each.net_connections()):
                    return each
    raise AssertionError(f"nothing listens at {port}")


@pytest.fixture
def contents(tmp_path):
    """Contents of one megabyte each, by hash."""
    found = {}
    for number in range(48):
        data = os.urandom(1 << 20)
        path = tmp_path / f"content{number}"
        path.write_bytes(data)
        digest = hasher()
        digest.update(data)
        found[digest.hexdigest()] = str(path)
    return found


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store")
    yield made
    made.close(keep=False)


@pytest.fixture
def serve():
    """Share contents, until the test ends."""
    with contextlib.ExitStack() as opened:

        def start(files, secret):
            share = Share(files, secret, "127.0.0.1")
            opened.callback(share.close)
            return share

        yield start


def receive_all(fetch):
    deadline = time.monotonic() + DEADLINE
    while not fetch.receive():
        assert time.monotonic() < deadline
        select.select([fetch], [], [], 0.0 if fetch.pending else 1.0)


def test_what_has_arrived_before_a_host_died_is_not_fetched_again(contents, store, serve):
    secret = one_time_certificate()
    share = serve(contents, secret)
    first = Fetch("127.0.0.1", share.port, secret, store, list(contents))
    # More than the first file, and far from the last: the sender waits while nothing is read.
    while first.received <= 2 << 20:
        assert not first.receive()
        select.select([first], [], [], 0.0 if first.pending else 1.0)
    share.close()
    with pytest.raises(FetchError):
        receive_all(first)
    first.close()
    left = store.lacking(contents)
    assert 0 < len(left) < len(contents)
    second = Fetch("127.0.0.1", serve(contents, secret).port, secret, store, list(contents))
    receive_all(second)
    second.close()
    assert store.lacking(contents) == []
    assert second.received == len(left) << 20


def answer(port, request, context=None):
    """What a request is answered; empty if the connection is refused."""
    with contextlib.ExitStack() as opened, contextlib.suppress(ssl.SSLError, ConnectionError):
        connection = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE))
        if context is not None:
            connection = opened.enter_context(context.wrap_socket(connection))
        connection.sendall(request)
        return connection.recv(1 << 20)
    return b""


def test_only_those_with_the_certificate_of_the_run_are_answered(contents, store, serve, tmp_path):
    share = serve(contents, one_time_certificate())
    with pytest.raises(FetchError, match="no secure connection"):
        Fetch("127.0.0.1", share.port, one_time_certificate(), store, list(contents))
    # A client that accepts any certificate, and has none or another one.
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    wanted = encode({"op": "want"}, zlib.compress(json.dumps(list(contents)).encode()))
    assert answer(share.port, wanted, trusting) == b""
    (tmp_path / "secret").write_bytes(one_time_certificate())
    trusting.load_cert_chain(tmp_path / "secret")
    assert answer(share.port, wanted, trusting) == b""
    assert len(answer(share.port, b"GET / HTTP/1.0\r\n\r\n")) < 100, "more than an alert of TLS"
    assert store.lacking(contents) == list(contents)


def test_content_that_is_not_of_the_run_is_neither_sent_nor_taken(contents, store, serve, tmp_path):
    secret = one_time_certificate()
    digest, *others = contents
    share = serve({each: contents[each] for each in others}, secret)
    refused = Fetch("127.0.0.1", share.port, secret, store, [digest])
    with pytest.raises(FetchError, match=r"closed the connection|reset"):
        receive_all(refused)
    refused.close()
    forged = serve({digest: contents[others[0]]}, secret)
    damaged = Fetch("127.0.0.1", forged.port, secret, store, [digest])
    with pytest.raises(FetchError, match="arrived damaged"):
        receive_all(damaged)
    damaged.close()
    assert store.lacking([digest]) == [digest]


def test_a_port_that_is_closed_again_gives_no_answer(contents, store, serve):
    secret = one_time_certificate()
    share = serve(contents, secret)
    share.close()
    with pytest.raises(FetchError, match="refused"):
        Fetch("127.0.0.1", share.port, secret, store, list(contents))
