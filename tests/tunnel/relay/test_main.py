"""The relay as its container runs it: the program of the pod's spec, real sockets, and a proxy that echoes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pathways_jupyter.tunnel.relay import main, relay_container
from pathways_jupyter.tunnel.relay.relay_container import RelaySpec
from pathways_jupyter.tunnel.relay.stream import Pool, StreamEnd
from pathways_jupyter.tunnel.relay.wire import (
    ACCEPTED,
    HEADER,
    OUTDATED,
    REFUSED,
    SECRET_BYTES,
    UNKNOWN,
    WELCOME_BYTES,
    Hello,
    Welcome,
)

PROXY_PORT = 29100
SECRET = os.urandom(SECRET_BYTES)
DEADLINE = 60.0
MEGABYTE = 1024 * 1024


class Pod:
    """The directory of sockets that stand for a pod's ports, a proxy that echoes, and a relay."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.dialled = 0
        self.processes: list[subprocess.Popen[str]] = []
        self._proxy = socket.socket(socket.AF_UNIX)
        self._proxy.bind(str(directory / str(PROXY_PORT)))
        self._proxy.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def relay(self, *, keep: float = 60.0, **changes: str) -> subprocess.Popen[str]:
        """Start a relay, and return once it listens or has ended."""
        spec = relay_container.container(RelaySpec(hashlib.sha256(SECRET).hexdigest(), keep=keep), PROXY_PORT)
        variables = {each["name"]: each["value"] for each in spec["env"]} | changes
        made = subprocess.Popen(
            [sys.executable, *spec["command"][1:]],
            env={"PATHWAYS_LOCAL_SOCKETS": str(self.directory), **variables},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(made)
        assert made.stdout is not None
        self.said = made.stdout.readline()
        return made

    def line(self) -> str:
        """The next line that the relay says."""
        stdout = self.processes[-1].stdout
        assert stdout is not None
        return stdout.readline()

    def is_alive(self) -> bool:
        """Return the result of the proxy's liveness probe."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(DEADLINE)
            if probe.connect_ex(str(self.directory / str(relay_container.alive_port_of(PROXY_PORT)))):
                return False
            assert probe.recv(1) == b""
            return True

    def connect(self) -> socket.socket:
        """A carrier that has said nothing yet."""
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(DEADLINE)
        made.connect(str(self.directory / str(relay_container.port_of(PROXY_PORT))))
        return made

    def close(self) -> None:
        self._proxy.close()
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._proxy.accept()
                self.dialled += 1
                threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        while data := connection.recv(1 << 18):
            connection.sendall(data)


class End:
    """A supervisor's end of one stream."""

    def __init__(self, pod: Pod, secret: bytes = SECRET) -> None:
        self.pod, self.secret = pod, secret
        self.id = os.urandom(16)
        # As large as a supervisor's.
        self.stream = StreamEnd(Pool(24, 16))
        self.received = bytearray()
        self.carrier = self.attach()

    def attach(self, *, is_new: bool = True) -> socket.socket:
        carrier = self.pod.connect()
        answer = greet(carrier, self.stream.hello(self.secret, self.id, is_new=is_new))
        assert answer is not None
        assert answer.code == ACCEPTED
        self.stream.resume(answer.received)
        return carrier

    def cut(self) -> None:
        self.carrier.close()
        self.carrier = self.attach(is_new=False)

    def flush(self) -> None:
        while frame := self.stream.next():
            self.carrier.sendall(b"".join(frame))

    def receive(self, count: int) -> None:
        """Take in at least `count` more bytes of the stream."""
        wanted = len(self.received) + count
        while len(self.received) < wanted:
            data = self.carrier.recv(1 << 16)
            assert data
            for piece in self.stream.feed(data):
                self.received += piece
            self.flush()


def greet(carrier: socket.socket, hello: Hello) -> Welcome | None:
    """The relay's answer; None when it closes the connection without one."""
    carrier.sendall(hello.encode())
    data = b""
    while len(data) < WELCOME_BYTES:
        with contextlib.suppress(ConnectionResetError):
            more = carrier.recv(WELCOME_BYTES - len(data))
        if not more:
            assert not data
            return None
        data += more
    return Welcome.decode(data)


@pytest.fixture
def pod() -> Iterator[Pod]:
    # Not pytest's own directory: its names are long, and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pj-") as name, contextlib.closing(Pod(Path(name))) as made:
        yield made


def test_without_the_secret_nothing_is_answered_and_the_proxy_is_not_reached(pod):
    pod.relay()
    for secret in (b"\0" * SECRET_BYTES, hashlib.sha256(SECRET).digest()):
        with pod.connect() as carrier:
            assert greet(carrier, Hello(secret, b"i" * 16, 1, 0, True)) is None
    with pod.connect() as carrier:
        carrier.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".ljust(100, b"\0"))
        with contextlib.suppress(ConnectionResetError):
            assert carrier.recv(1) == b""
    assert pod.dialled == 0


@pytest.mark.parametrize("digest", ["", "00", "secret"])
def test_it_does_not_listen_without_the_hash_of_a_secret(pod, digest):
    assert pod.relay(PATHWAYS_RELAY_SECRET_SHA256=digest).wait(DEADLINE) == 2
    assert "not started" in pod.said


def test_the_proxys_connection_outlives_its_carriers_and_the_memory_stays_small(pod):
    relay = pod.relay()
    end, sent = End(pod), bytearray()
    for number in range(48):
        data = os.urandom(1 << 16) * 16
        assert end.stream.out.write(data) == MEGABYTE
        sent += data
        # Cut in the middle of a frame, with what is on the way in both directions.
        frame = b"".join(end.stream.next() or ())
        end.carrier.sendall(frame[: len(frame) // 2])
        if number % 3 == 0:
            end.cut()
        else:
            end.carrier.sendall(frame[len(frame) // 2 :])
        end.flush()
        end.receive(len(sent) - len(end.received))
    assert end.received == sent
    assert pod.dialled == 1
    assert psutil.Process(relay.pid).memory_info().rss < 40 * MEGABYTE


def test_more_small_messages_at_a_time_than_one_system_call_takes(pod):
    pod.relay()
    end, sent, frames = End(pod), os.urandom(5000), bytearray()
    for at in range(len(sent)):
        end.stream.out.write(sent[at : at + 1])
        frames += b"".join(end.stream.next() or ())
    assert len(frames) > os.sysconf("SC_IOV_MAX") * (HEADER.size + 1)
    end.carrier.sendall(frames)
    end.receive(len(sent))
    assert end.received == sent
    assert pod.dialled == 1


def test_what_came_before_a_carrier_that_does_not_follow_the_protocol_reaches_the_proxy(pod):
    pod.relay()
    end = End(pod)
    end.stream.out.write(b"in order")
    end.carrier.sendall(b"".join(end.stream.next() or ()) + HEADER.pack(0, 0, 0))
    assert "a carrier is closed" in pod.line()
    end.cut()
    end.flush()
    end.receive(8)
    assert end.received == b"in order"


def test_carriers_that_were_overtaken_and_streams_that_are_unknown_are_refused(pod):
    pod.relay()
    end = End(pod)
    end.cut()
    late = Hello(SECRET, end.id, 1, 0, True)
    with pod.connect() as carrier:
        assert greet(carrier, late) == Welcome(OUTDATED)
    with pod.connect() as carrier:
        assert greet(carrier, Hello(SECRET, b"x" * 16, 1, 0, False)) == Welcome(UNKNOWN)
    end.stream.out.write(b"still here")
    end.flush()
    end.receive(10)
    assert end.received == b"still here"


def test_a_stream_that_its_program_has_closed_is_over_at_both_ends(pod):
    pod.relay()
    end = End(pod)
    end.stream.out.write(b"last words")
    end.stream.finish()
    end.flush()
    while not (end.stream.is_over and end.stream.peer_finished):
        for _ in end.stream.feed(end.carrier.recv(1 << 16)):
            pass
        end.flush()


def test_a_proxy_that_reads_late_gets_everything_and_then_the_end(pod):
    path = pod.directory / str(PROXY_PORT)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        pod.relay()
        end = End(pod)
        proxy, _ = listener.accept()
    with proxy:
        proxy.settimeout(DEADLINE)
        # More than the proxy's socket holds, so that the relay keeps the rest beyond the end of the stream.
        sent = os.urandom(2 * MEGABYTE)
        assert end.stream.out.write(sent) == len(sent)
        end.stream.finish()
        end.flush()
        while not end.stream.is_over:
            for _ in end.stream.feed(end.carrier.recv(1 << 16)):
                pass
            end.flush()
        received = bytearray()
        while data := proxy.recv(1 << 18):
            received += data
    assert received == sent


def test_a_proxy_that_does_not_listen_is_reported(pod):
    pod.relay()
    (pod.directory / str(PROXY_PORT)).unlink()
    with pod.connect() as carrier:
        assert greet(carrier, Hello(SECRET, b"i" * 16, 1, 0, True)) == Welcome(REFUSED)


@pytest.mark.thorough
def test_its_ports_are_closed_when_nothing_came_for_long_enough(pod):
    # Long enough for the two lines that follow, also where another process has the processor.
    relay = pod.relay(keep=4.0)
    end = End(pod)
    assert pod.is_alive()
    assert "closed: nothing came from the session for 4 s" in pod.line()
    assert not pod.is_alive()
    with pytest.raises(OSError, match="No such file"):
        pod.connect()
    assert end.carrier.recv(1) == b""
    # It waits for the end of the pod: if it exited, it would be restarted, and listen again.
    assert relay.poll() is None
    relay.terminate()
    assert relay.wait(DEADLINE) == 0


def test_a_supervisor_without_streams_keeps_the_proxy(pod, monkeypatch):
    monkeypatch.setenv("PATHWAYS_LOCAL_SOCKETS", str(pod.directory))
    now = 1000.0
    monkeypatch.setattr(main, "time", SimpleNamespace(monotonic=lambda: now, strftime=time.strftime))
    ports = relay_container.port_of(PROXY_PORT), PROXY_PORT, relay_container.alive_port_of(PROXY_PORT)
    relay = main.Relay(main.Settings(hashlib.sha256(SECRET).digest(), *ports, 60.0))
    running = threading.Thread(target=relay.run)
    running.start()
    now += 50
    with pod.connect() as carrier:
        # No stream: one that the relay does not know.
        assert greet(carrier, Hello(SECRET, os.urandom(16), 1, 0, False)) == Welcome(UNKNOWN)
    now += 50
    # After the first one it looks at the clock; so the second one is taken only if it goes on.
    assert pod.is_alive()
    assert pod.is_alive()
    now += 50
    running.join(DEADLINE)
    assert not running.is_alive()
    assert not pod.is_alive()
    assert pod.dialled == 0


def test_without_another_image_it_runs_in_the_default_one():
    public = relay_container.container(RelaySpec("00" * 32), PROXY_PORT)["image"]
    assert public == "mirror.gcr.io/library/python:3.13-slim"
    assert relay_container.container(RelaySpec("00" * 32, "mine:1"), PROXY_PORT)["image"] == "mine:1"


def test_kubernetes_takes_the_program_as_it_is():
    spec = relay_container.container(RelaySpec("00" * 32), PROXY_PORT)
    texts = [*spec["command"], *(each["value"] for each in spec["env"])]
    # Kubernetes would expand it.
    assert not any("$" in text for text in texts)
    # Linux takes no longer argument or variable.
    assert max(map(len, texts)) < 128 * 1024
