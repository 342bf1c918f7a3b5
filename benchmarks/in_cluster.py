"""A notebook's pod in the cluster, with and without the tunnel: a tiny operation, and 128 MB each way.

Both sessions run in one pod of the embedded cluster, one after the other. There the pod network is a unix socket, so
that the numbers show what the tunnel costs, not what a network would.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import Any

from benchmarks.measure import Row, Table, median
from pathways_jupyter.kube import auth, objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Object
from pathways_jupyter.service.lab import manifests
from pathways_jupyter.service.lab.manifests import LabSpec

_NAME, _NAMESPACE = "bench-in-cluster", "default"
_MEGABYTES = 128
_ROUNDS = 5
_OPERATIONS = 300
_DIRECT, _TUNNEL = "direct", "with the tunnel"
_SECONDS = 240.0


def run(kubeconfig: str, context: str) -> list[Table]:
    """Measure both ways in a pod."""
    taken: dict[str, dict[str, float]] = in_pod(kubeconfig, context, "in_cluster")
    speed = [
        Row(f"{way}, {_MEGABYTES} MB", {name: values[way] for name, values in taken.items()}) for way in ("up", "down")
    ]
    operation = {name: values["operation"] for name, values in taken.items()}
    ratios = {way: taken[_DIRECT][way] / taken[_TUNNEL][way] for way in ("up", "down")}
    return [
        Table(
            "A notebook in the cluster: transfers",
            "MB/s",
            speed,
            verdict=", ".join(f"{way}: {ratio:.1f} times as fast without the tunnel" for way, ratio in ratios.items()),
            notes=["Proxy and notebook are on one machine: on a network, its bandwidth is the limit."],
        ),
        Table("A notebook in the cluster: tiny operation", "ms", [Row("jit(x + 1), waited for", operation)]),
    ]


def measure() -> dict[str, dict[str, float]]:
    """Measure in the pod."""
    import pathways_jupyter

    taken = {}
    for name, tunnel in ((_DIRECT, False), (_TUNNEL, True)):
        with pathways_jupyter.connect(tpu="tpuv6e:2x2=1", tunnel=tunnel, wait=60, progress=False) as session:
            print(session.record.data_path, flush=True)
            taken[name] = _session()
    return taken


def _session() -> dict[str, float]:
    import jax
    import numpy as np

    content = np.ones(_MEGABYTES * 1_000_000 // 4, np.float32)
    add = jax.jit(lambda x: x + 1)
    small = add(jax.numpy.float32(0)).block_until_ready()
    up, down, operations = [], [], []
    for round_ in range(_ROUNDS + 1):
        began = time.perf_counter()
        array = jax.device_put(content).block_until_ready()
        middle = time.perf_counter()
        np.asarray(array)
        if round_:
            # The first round also pays for fresh memory.
            up.append(middle - began)
            down.append(time.perf_counter() - middle)
        array.delete()
    for _ in range(_OPERATIONS):
        began = time.perf_counter()
        small = add(small).block_until_ready()
        operations.append(time.perf_counter() - began)
    return {
        "up": _MEGABYTES / median(up),
        "down": _MEGABYTES / median(down),
        "operation": median(operations) * 1000,
    }


def in_pod(kubeconfig: str, context: str, module: str) -> Any:
    """Return what ``measure()`` of a module of this package returns in a pod that may connect directly."""
    return asyncio.run(_in_pod(kubeconfig, context, module))


async def _in_pod(kubeconfig: str, context: str, module: str) -> Any:
    spec = LabSpec(name=_NAME, namespace=_NAMESPACE, image="python:3")
    made = (
        (SERVICE_ACCOUNTS, manifests.service_account(spec)),
        (ROLES, manifests.role(spec, direct=True)),
        (ROLE_BINDINGS, manifests.role_binding(spec)),
        (PODS, _pod(spec, module)),
    )
    async with Client(auth.load(kubeconfig, context)) as client:
        try:
            for resource, body in made:
                await objects.create(client, resource, body)
            async with asyncio.timeout(_SECONDS):
                said = [line async for line in _log(client)]
        finally:
            for resource, _ in reversed(made):
                await objects.delete(client, resource, _NAME, namespace=_NAMESPACE, grace_seconds=0)
    if not said or not said[-1].startswith("{"):
        raise RuntimeError("\n".join(["The bench in the pod failed:", *said[-20:]]))
    return json.loads(said[-1])


def _pod(spec: LabSpec, module: str) -> Object:
    # The last line of the log is the result.
    code = (
        "import json, sys; sys.path[:0] = sys.argv[1:]; "
        f"from benchmarks import {module}; print(json.dumps({module}.measure()), flush=True)"
    )
    container: dict[str, Any] = {
        "name": "main",
        "image": spec.image,
        "command": [sys.executable, "-c", code, *filter(None, sys.path)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE, "labels": {"bench": _NAME}},
        "spec": {"serviceAccountName": _NAME, "restartPolicy": "Never", "containers": [container]},
    }


async def _log(client: Client) -> Any:
    while True:
        pod = await objects.get(client, PODS, _NAME, namespace=_NAMESPACE)
        if (pod.get("status") or {}).get("phase") in {"Running", "Succeeded", "Failed"}:
            break
        await asyncio.sleep(0.1)
    lines = pods.logs(client, _NAME, namespace=_NAMESPACE, container="main", follow=True)
    async with contextlib.aclosing(lines):
        async for line in lines:
            yield line
