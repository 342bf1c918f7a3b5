"""Clients of the resource manager and the sidecar that do not belong to the cluster, or break the protocol."""

from __future__ import annotations

import json
import socket

import psutil
import pytest

SECRET = "open sesame"
NONSENSE = [
    b"\n",
    b"\xff\xfe\n",
    b"null\n",
    b"[]\n",
    b'"x"\n',
    b'{"type": []}\n',
    b'{"type": "hello"}\n',
    b"[" * 100_000 + b"\n",
    b'{"type":' * 100_000 + b"\n",
    b'{"type": "hello", "secret": "h\xc3\xa9"}\n',
    b'{"type": "hello", "secret": "\\ud800"}\n',
    b'{"type": "hello", "secret": 1e400}\n',
    b'{"type": "hello", "parts": [2000000000]}\n',
    b"x" * (2 << 20),
]
HELLOS = [
    {},
    {"role": "king"},
    {"role": []},
    {"role": "worker"},
    {"role": "worker", "slice": 1e400, "host": 0, "job": "j", "pod": "p"},
    {"role": "worker", "slice": None, "host": 0, "job": "j", "pod": "p"},
    {"role": "worker", "slice": 99, "host": 0, "job": "j", "pod": "p"},
    {"role": "worker", "slice": -1, "host": -1, "job": "j", "pod": "p"},
    {"role": "proxy"},
    {"role": "proxy", "name": "n", "slices": 5},
    {"role": "proxy", "name": "n", "slices": [1e400]},
    {"role": "proxy", "name": "n", "slices": ["tpuv6e:2x2"], "held": 7},
    {"role": "proxy", "name": "n", "slices": ["tpuv6e:2x2"], "held": [1e400]},
]


@pytest.fixture(scope="module")
def hostile(make_service):
    return make_service(slices=1)


def answer(connection: socket.socket, data: bytes) -> bytes:
    """What comes back, until the other side closes or has said a line that is no heartbeat."""
    connection.settimeout(60)
    found = b""
    try:
        connection.sendall(data)
        while True:
            lines = [line for line in found.split(b"\n")[:-1] if b'"beat"' not in line]
            if lines:
                return lines[0]
            piece = connection.recv(1 << 16)
            if not piece:
                return found
            found += piece
    except ConnectionError:
        return found


def refused(line: bytes) -> bool:
    return not line or b"refused" in line


def test_the_resource_manager_refuses_nonsense_and_goes_on(hostile):
    for data in NONSENSE:
        with socket.create_connection((hostile._address, 29001)) as connection:
            assert refused(answer(connection, data)), data[:40]
    for hello in HELLOS:
        with socket.create_connection((hostile._address, 29001)) as connection:
            line = json.dumps({"type": "hello", "secret": SECRET, **hello}).encode().replace(b"Infinity", b"1e400")
            assert refused(answer(connection, line + b"\n")), hello
    hostile.worker(0)
    hostile.resource_manager.log.wait("1/1 Pathways Slices Now Ready")
    assert "Traceback" not in str(hostile.resource_manager.log)


def test_connections_that_say_nothing_do_not_starve_the_resource_manager(hostile):
    open_ = [socket.create_connection((hostile._address, 29001)) for _ in range(300)]
    try:
        with socket.create_connection((hostile._address, 29001)) as connection:
            assert b"only workers and proxies" in answer(
                connection, json.dumps({"type": "hello", "secret": SECRET}).encode() + b"\n"
            )
        assert psutil.Process(hostile.resource_manager.process.pid).num_fds() < 150
    finally:
        for each in open_:
            each.close()


def test_the_sidecar_refuses_nonsense_and_goes_on(hostile):
    sidecar = hostile.sidecar(0)
    path = str(hostile.directory(0) / "50051")
    for data in [*NONSENSE, b'{"secret": "x", "parts": [1e400]}\n', b'{"secret": "x", "parts": [2000000000]}\n']:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            assert refused(answer(connection, data)), data[:40]
    for parts in ([2**50], [-1], ["x"], [1e400], [None], 5, None):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            hello = {"secret": SECRET, "host": 0, "devices": {"0": 0}, "parts": []}
            assert b"ready" in answer(connection, json.dumps(hello).encode() + b"\n")
            line = json.dumps({"id": 1, "parts": parts}).replace("Infinity", "1e400")
            assert answer(connection, line.encode() + b"\n") == b""
    assert "Traceback" not in str(sidecar.log)
