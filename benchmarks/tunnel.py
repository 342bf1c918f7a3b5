"""The tunnel beside the `kubernetes` package's, kubectl's and a direct connection: throughput and round trips.

All lead to the same pod. Ours and the package's listen on a unix socket in a process of their own, on uvloop, as a
session's does; kubectl on a TCP port; the direct connection goes to the pod's own address, which only the embedded
cluster allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil

from benchmarks import sink
from benchmarks.measure import Row, Table, interleave, median
from pathways_jupyter.base import process_setup
from pathways_jupyter.base.errors import ClusterError
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.carrier import PodPort, PortRefused
from pathways_jupyter.tunnel.outage import Outage
from pathways_jupyter.tunnel.relay import relay_container
from pathways_jupyter.tunnel.relay.wire import SECRET_BYTES
from pathways_jupyter.tunnel.resumable_stream import RelayClient

_POD = "bench-sink"
_NAMESPACE = "default"
_PORT = 9000
_MEGABYTES = 256
_ROUNDS = 3
_TRIPS = 300
_PATIENCE_SECONDS = 30.0
_SECRET = b"0" * SECRET_BYTES
_RELAYED = "ours, with a relay"
_OURS, _LIBRARY, _KUBECTL = "ours", "kubernetes.aio", "kubectl port-forward"

Dial = Callable[[], socket.socket]


def run(kubeconfig: str, context: str) -> list[Table]:
    """Measure every way that this machine has."""
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(_pod(kubeconfig, context))
        ways: dict[str, Dial] = {"direct loopback": lambda: socket.create_connection((address, _PORT))}
        ways[_OURS] = stack.enter_context(_ours(kubeconfig, context))
        ways[_RELAYED] = stack.enter_context(_ours(kubeconfig, context, "relay"))
        ways[_LIBRARY] = stack.enter_context(_library(kubeconfig, context))
        if shutil.which("kubectl"):
            ways[_KUBECTL] = stack.enter_context(_kubectl(kubeconfig, context))
        up = interleave({name: partial(_rate, dial, b"U") for name, dial in ways.items()}, times=_ROUNDS)
        down = interleave({name: partial(_rate, dial, b"D") for name, dial in ways.items()}, times=_ROUNDS)
        trips = interleave({name: partial(_round_trip, dial) for name, dial in ways.items()}, times=_ROUNDS)
        memory = _relay_memory()
    return [
        Table(
            "Tunnel throughput",
            "MB/s",
            [Row(f"up, {_MEGABYTES} MB", up), Row(f"down, {_MEGABYTES} MB", down)],
            goal="1.3 times kubectl's, each way",
            verdict=_ratios({"up": up, "down": down}),
            notes=["API server and kubelet are the embedded cluster's, in Python, and use most of the CPU."],
        ),
        Table(
            "Tunnel round trip",
            "us",
            [Row("one byte there and back", trips)],
            goal="0.8 of kubectl's",
            verdict=_ratios({"round trip": trips}),
        ),
        Table(
            "A relay beside the proxy",
            "ratio",
            [
                Row("up", {_RELAYED: up[_RELAYED] / up[_OURS]}),
                Row("down", {_RELAYED: down[_RELAYED] / down[_OURS]}),
                Row("round trip", {_RELAYED: trips[_OURS] / trips[_RELAYED]}),
            ],
            goal="0.9 of the tunnel without it; 40 MB of memory",
            verdict=f"{memory:.0f} MB of memory after {2 * _ROUNDS * _MEGABYTES} MB",
            notes=["More is better. All processes share one machine; in a cluster the relay has a core of its own."],
        ),
    ]


def forward(arguments: list[str]) -> int:
    """Run our forward until standard input closes; the address is its first line of output."""
    kubeconfig, context, *with_relay, path = arguments
    # As in a session's supervisor.
    process_setup.keep_freed_memory()

    async def serve() -> None:
        async with Client(auth.load(kubeconfig, context)) as client:
            target = PodPort(client, _NAMESPACE, _POD, _PORT)
            relayed = RelayClient(
                replace(target, port=relay_container.port_of(_PORT)), _SECRET, 60.0, Outage(print, print, _no_reload)
            )
            open_stream = relayed.open if with_relay else None
            listening = await portforward.listen(target, path=Path(path), open_stream=open_stream)
            if with_relay:
                # The pod may be ready before its relay listens.
                async for _ in (attempts := Backoff(0.02, 0.25, seconds=_PATIENCE_SECONDS)):
                    try:
                        await listening.prepare()
                        break
                    except PortRefused:
                        if attempts.is_over:
                            raise
            print(listening.address, flush=True)
            await asyncio.to_thread(sys.stdin.read)
            await listening.close()
            await relayed.close()

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
    return 0


async def _no_reload(_error: ClusterError) -> None:
    """Stay at the same server."""


def _relay_memory() -> float:
    """Return the relay's memory in MB; it is a process of this machine."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any("PATHWAYS_RELAY_" in word for word in process.cmdline()):
                return float(process.memory_info().rss) / 1e6
    raise RuntimeError("The relay does not run.")


def _rate(dial: Dial, action: bytes) -> float:
    size = _MEGABYTES << 20
    with dial() as connection:
        began = time.perf_counter()
        connection.sendall(sink.HEADER.pack(action, size))
        if action == b"U":
            sink.send(connection, size)
            sink.receive(connection, 1)
        else:
            sink.receive(connection, size)
        return _MEGABYTES / (time.perf_counter() - began)


def _round_trip(dial: Dial) -> float:
    with dial() as connection:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(sink.HEADER.pack(b"E", 0))
        taken = []
        for _ in range(_TRIPS):
            began = time.perf_counter()
            connection.sendall(b".")
            sink.receive(connection, 1)
            taken.append(time.perf_counter() - began)
        return 1e6 * median(taken)


def _ratios(measured: dict[str, dict[str, float]]) -> str:
    def against(peer: str) -> str:
        if not all(peer in ways for ways in measured.values()):
            return f"there is no {peer} here"
        return ", ".join(f"{name} {ways[_OURS] / ways[peer]:.2f}" for name, ways in measured.items())

    return f"{against(_KUBECTL)}; against {_LIBRARY}: {against(_LIBRARY)}"


@contextlib.contextmanager
def _pod(kubeconfig: str, context: str) -> Iterator[str]:
    """Create the pod with the server; return its address."""
    asyncio.run(_change(kubeconfig, context, create=True))
    try:
        yield asyncio.run(_address(kubeconfig, context))
    finally:
        asyncio.run(_change(kubeconfig, context, create=False))


async def _change(kubeconfig: str, context: str, *, create: bool) -> None:
    command = [sys.executable, "-m", "benchmarks.sink", str(_PORT)]
    relay = relay_container.RelaySpec(sha256(_SECRET).hexdigest())
    sink_container = {
        "name": "sink",
        "image": "python:3.12",
        "command": command,
        "ports": [{"containerPort": _PORT}],
        "readinessProbe": {"tcpSocket": {"port": _PORT}, "periodSeconds": 1},
    }
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _POD},
        "spec": {"initContainers": [relay_container.container(relay, _PORT)], "containers": [sink_container]},
    }
    async with Client(auth.load(kubeconfig, context)) as client:
        if create:
            await objects.create(client, objects.PODS, body, namespace=_NAMESPACE)
        else:
            await objects.delete(client, objects.PODS, _POD, namespace=_NAMESPACE, grace_seconds=0)


async def _address(kubeconfig: str, context: str) -> str:
    from pathways_jupyter.kube import watch

    async with Client(auth.load(kubeconfig, context)) as client, asyncio.timeout(60):
        async for change in watch.watch(client, objects.PODS, namespace=_NAMESPACE, name=_POD):
            status = (change.object or {}).get("status", {})
            if any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", [])):
                return str(status["podIP"])
    raise RuntimeError("The pod did not become ready.")


@contextlib.contextmanager
def _ours(kubeconfig: str, context: str, *with_relay: str) -> Iterator[Dial]:
    program = "import sys; from benchmarks import tunnel; sys.exit(tunnel.forward(sys.argv[1:]))"
    with _on_socket(["-c", program, kubeconfig, context, *with_relay]) as dial:
        yield dial


@contextlib.contextmanager
def _library(kubeconfig: str, context: str) -> Iterator[Dial]:
    where = [kubeconfig, context, _NAMESPACE, _POD, str(_PORT)]
    with _on_socket(["-m", "benchmarks.library_forward", *where]) as dial:
        yield dial


@contextlib.contextmanager
def _on_socket(program: list[str]) -> Iterator[Dial]:
    """Run a Python program that forwards the unix socket that is its last argument."""
    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        path = os.path.join(directory, "tunnel")
        process = subprocess.Popen(
            [sys.executable, *program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with _ending(process):
            _first_line(process)

            def dial() -> socket.socket:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(path)
                return connection

            yield dial


@contextlib.contextmanager
def _kubectl(kubeconfig: str, context: str) -> Iterator[Dial]:
    target = ["--context", context, "--namespace", _NAMESPACE, "port-forward", f"pod/{_POD}", f":{_PORT}"]
    process = subprocess.Popen(["kubectl", "--kubeconfig", kubeconfig, *target], stdout=subprocess.PIPE, text=True)
    with _ending(process):
        port = int(_first_line(process).split(" -> ")[0].rsplit(":", 1)[1])
        yield lambda: socket.create_connection(("127.0.0.1", port))


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait()} before it was ready.")
    return line


@contextlib.contextmanager
def _ending(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=10)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
