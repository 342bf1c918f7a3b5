"""Memory of each process of a connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from benchmarks.measure import Row, Table
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client

if TYPE_CHECKING:
    import psutil


def run(kubeconfig: str, context: str) -> list[Table]:
    """Connect once, and read what every process of the cluster and the session holds.

    Args:
      kubeconfig: The embedded cluster's, from whose directory its processes are found.
      context: The context in it.
    """
    import jax
    import psutil

    import pathways_jupyter
    from pathways_jupyter.local import cluster

    running = cluster.find("bench")
    with pathways_jupyter.connect(kubeconfig=kubeconfig, context=context, tpu={"tpuv6e:2x2": 2}, wait=60) as session:
        int(jax.numpy.arange(8).sum())
        rows = [_row("kernel, with JAX", psutil.Process()), _row("supervisor", psutil.Process(session.record.pid))]
        if running is not None:
            daemon, pods = psutil.Process(running.pid), asyncio.run(_pods(kubeconfig, context))
            rows.append(_row("embedded cluster: daemon", daemon))
            for process in daemon.children(recursive=True):
                # One may end before it is read.
                with contextlib.suppress(psutil.NoSuchProcess):
                    rows.append(_row(f"embedded cluster: {_name(process, pods)}", process))
    return [
        Table(
            "Memory",
            "MB",
            rows,
            notes=["Pods are forked from warm processes: most of what is resident in them is shared with those."],
        )
    ]


def _row(name: str, process: psutil.Process) -> Row:
    held = process.memory_full_info()
    return Row(name, {"resident": held.rss / 1e6, "of its own": held.uss / 1e6})


def _name(process: psutil.Process, pods: Mapping[str, str]) -> str:
    # A container works in its pod's directory, which is named by the pod's uid; the warm processes do not.
    return pods.get(PurePath(process.cwd()).parent.name, "a warm process")


async def _pods(kubeconfig: str, context: str) -> dict[str, str]:
    """Names of all pods by uid."""
    async with Client(auth.load(kubeconfig, context)) as client:
        listing = await objects.list_(client, objects.PODS)
    return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in listing.items}
