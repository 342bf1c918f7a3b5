"""The embedded proxy on its own HTTP/2 and on grpcio: the same server, the same JAX client, no tunnel between them.

Run as ``python -m benchmarks.transport serve own|grpcio SOCKET`` or ``... client SOCKET`` in processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Row, Table, in_process, median

_ROUNDS = 3
_DISPATCHES = 1000
_MEGABYTES = 512
_GOAL = 1.3
_TRANSPORTS = ("own", "grpcio")


def run() -> list[Table]:
    """Run both in turn; times until the client has what it asked for, and CPU of client and server together."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in _TRANSPORTS}
    for _ in range(_ROUNDS):
        for name in _TRANSPORTS:
            taken[name].append(_one(name))
    middle = {name: {key: median([each[key] for each in runs]) for key in runs[0]} for name, runs in taken.items()}
    own, peer = (middle[name] for name in _TRANSPORTS)
    times = [key for key in own if "CPU" not in key]
    ratios = {key: peer[key] / own[key] for key in times}
    better = sum(ratio >= _GOAL for ratio in ratios.values())
    listed = ", ".join(f"{key} {ratio:.2f}" for key, ratio in ratios.items())
    return [
        Table(
            "HTTP/2 of the embedded proxy",
            "ms",
            [Row(key, {"own": own[key], "grpcio": peer[key]}) for key in own],
            goal=f"at least {_GOAL} times better than grpcio in two of the four times",
            verdict=f"in {better} of {len(times)} (grpcio's time over ours: {listed})",
            notes=["A unix socket, no tunnel; medians of interleaved rounds, each in fresh processes."],
        )
    ]


def _one(transport: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        path = Path(directory) / "proxy.sock"
        command = [sys.executable, "-m", "benchmarks.transport", "serve", transport, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            server.stdout.readline()
            environ = {**os.environ, "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true", "JAX_PLATFORMS": "proxy"}
            environ["JAX_BACKEND_TARGET"] = f"grpc://unix:{path}"
            measured: dict[str, float] = in_process(
                "benchmarks.transport", "client", str(server.pid), environ=environ, timeout=600
            )
            server.terminate()
        return measured


def serve(transport: str, path: str) -> None:
    """Serve two slices of four chips in this process until it is ended."""
    from pathways_jupyter.base.tpu import parse_instance_type
    from pathways_jupyter.local.pathways.ifrt import ifrt_service as ifrt
    from pathways_jupyter.local.pathways.ifrt.machine import Machine

    if transport == "grpcio":
        from benchmarks import grpcio_listener
        from pathways_jupyter.local.pathways.http2 import connection

        vars(connection)["listen"] = grpcio_listener.listen
    machine = Machine([parse_instance_type("tpuv6e:2x2")] * 2, sidecars=False)
    machine.placed.settle(None)
    server = ifrt.Server(machine)
    server.listen(Path(path))
    print("serving", flush=True)
    sys.stdin.read()


def client(server: int) -> dict[str, float]:
    """Measure the four times that the decision rests on, and the CPU time of each."""
    import jax
    import numpy as np
    import pathwaysutils
    import psutil

    pathwaysutils.initialize()
    processes = [psutil.Process(), psutil.Process(server)]

    def cpu() -> float:
        return sum(sum(each.cpu_times()[:2]) for each in processes)

    device = jax.devices()[0]
    add = jax.jit(lambda x: x + 1)
    one = jax.device_put(np.float32(1), device)
    host = np.ones(_MEGABYTES << 18, np.float32)

    def chain() -> None:
        value = one
        for _ in range(_DISPATCHES):
            value = add(value)
        value.block_until_ready()

    measured: dict[str, float] = {}

    def measure(name: str, work: Callable[[], object], times: int) -> None:
        work()
        spent, before = [], cpu()
        for _ in range(times):
            began = time.perf_counter()
            work()
            spent.append(time.perf_counter() - began)
        measured[name] = 1e3 * median(spent)
        measured[f"CPU of {name}"] = 1e3 * (cpu() - before) / times

    measure("a tiny op", lambda: add(one).block_until_ready(), 300)
    measure("1,000 dispatches", chain, 5)
    measure("512 MB up", lambda: jax.device_put(host, device).block_until_ready(), 2)
    on_device = jax.device_put(host, device)
    measure("512 MB down", lambda: np.asarray(add(on_device)), 2)
    return measured


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "serve":
        serve(*rest)
    else:
        print(json.dumps(client(int(rest[0]))))
