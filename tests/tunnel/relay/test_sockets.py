"""The relay's sockets: ports that are files, and one loop for all."""

from __future__ import annotations

import contextlib
import socket

import pytest

from pathways_jupyter.tunnel.relay.sockets import READ, WRITE, Sockets, dial, listen


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("PATHWAYS_LOCAL_SOCKETS", str(tmp_path))
    return tmp_path


def test_a_port_of_an_embedded_pod_is_a_socket_that_replaces_a_dead_one(directory):
    listen(7000).close()
    with contextlib.closing(listen(7000)) as listener, contextlib.closing(dial(7000)) as connection:
        accepted, _ = listener.accept()
        connection.sendall(b"x")
        assert accepted.recv(1) == b"x"
        accepted.close()
    with pytest.raises(OSError, match="refused"):
        dial(7000)


def test_a_socket_is_called_for_what_it_is_watched_for_and_no_more_once_it_is_closed():
    sockets, calls = Sockets(), []
    ours, theirs = socket.socketpair()
    sockets.watch(ours, READ, calls.append)
    sockets.wait(0)
    assert calls == []
    theirs.send(b"x")
    sockets.wait(1)
    assert calls == [READ]
    sockets.watch(ours, WRITE, calls.append)
    sockets.wait(1)
    assert calls == [READ, WRITE]
    sockets.watch(ours, 0, calls.append)
    sockets.wait(0)
    sockets.close(ours)
    sockets.wait(0)
    assert calls == [READ, WRITE]
    theirs.close()
