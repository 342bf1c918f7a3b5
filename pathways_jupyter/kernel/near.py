"""The near end of a lab on this machine: one process for all its kernels here, with one stream to the lab's pod.

So a second kernel, and a restart, wait for no connection. The first kernelspec's process forks it, in a session of its
own; later ones find it by its lock, and hand over the two pipes by which they are connected to it. A kernel ends when
its process is gone, however it died. The near end goes some seconds after its last kernel, and the last of their
sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from pathways_jupyter.base import process_setup, tasks
from pathways_jupyter.base.errors import ClusterError, ConnectionLost, PathwaysError
from pathways_jupyter.kernel import handover, kernel_settings
from pathways_jupyter.kernel.handover import Doorbell, KernelRequest
from pathways_jupyter.kernel.kernel_settings import KernelSettings
from pathways_jupyter.kernel.mirror import MirroredSessions
from pathways_jupyter.kernel.near_kernel import NearKernel
from pathways_jupyter.kernel.places import KernelPlace
from pathways_jupyter.kube import claim_package
from pathways_jupyter.kube.client import Client, preload
from pathways_jupyter.service.lab import lifecycle
from pathways_jupyter.service.lab.lab_stream import LabStream
from pathways_jupyter.session import clusters, registry
from pathways_jupyter.tunnel.multiplexer import StreamChannel

IDLE_SECONDS = 10.0
"""Time without kernels and sessions after which the near end goes: a restart comes sooner."""


class NearEnd:
    """All kernels of one lab on this machine.

    Args:
      identity: The same for each near end of these settings and this machine, of which there is one at a time.
    """

    def __init__(self, chosen: KernelSettings, identity: str) -> None:
        self._chosen, self._identity = chosen, identity
        # The cluster's name, for people; empty until it is known.
        self._cluster = ""
        self._kernels: dict[str, NearKernel] = {}
        self._running = tasks.Running()
        self._changed = asyncio.Event()
        self._opening = asyncio.Lock()
        self._client: Client | None = None
        self._stream: LabStream | None = None
        self._embedded: clusters.Embedded | None = None
        # Why the stream is cut; empty while it is not.
        self._cut = ""
        self._mirror = MirroredSessions(chosen.where, self._changed.set, lambda: bool(self._cut))

    def start(self, request: KernelRequest) -> None:
        """Start a kernel; a request that was handed over twice has been answered already."""
        if request.run in self._kernels:
            os.close(request.lifeline)
            os.close(request.answer)
            return
        where = kernel_settings.cluster_settings(self._chosen.where)
        place = KernelPlace(request.kernel_id, self._chosen.lab.name, where=where)
        kernel = self._kernels[request.run] = NearKernel(request, place, self.stream)
        self._running.begin(self._run(kernel))
        self._changed.set()
        if self._cut:
            words = f"The connection to the pod of its kernels is cut, and this one waits for it. {self._cut}"
            kernel.report(words, self._cluster)

    async def _run(self, kernel: NearKernel) -> None:
        try:
            await kernel.run()
        finally:
            del self._kernels[kernel.request.run]
            self._changed.set()

    async def until_idle(self) -> None:
        """Return when there was nothing to do for some seconds."""
        while True:
            self._changed.clear()
            is_idle = not (self._kernels or self._mirror.sessions)
            try:
                async with asyncio.timeout(IDLE_SECONDS if is_idle else None):
                    await self._changed.wait()
            except TimeoutError:
                # A kernel may have come at the last moment.
                if not self._kernels:
                    return

    async def end_earlier(self) -> None:
        """End what a near end has left in the pod that was killed."""
        where = self._chosen.where
        with contextlib.suppress(PathwaysError):
            async with Client(await clusters.resolve(where)) as client:
                namespace = where.namespace or client.namespace
                is_running = await lifecycle.is_running(client, namespace, self._chosen.lab.name)
            if is_running:
                await self.stream()

    async def stream(self) -> LabStream:
        """Return the stream to the lab's pod, which is started if need be.

        Raises:
          PathwaysError: It cannot start, or cannot be reached.
        """
        async with self._opening:
            if self._stream is None or self._stream.ended.done():
                self._report("Looks for the pod of its kernels.")
                # Another one: the cluster may have moved, and another pod has nothing of the last one's.
                await self._close_stream()
                stream = self._stream = await self._opened()
                self._mirror.follow(stream)
                stream.channels.post({"near": self._identity})
                # No message comes any more that a session has gone.
                stream.ended.add_done_callback(lambda _: self._forget(stream))
            return self._stream

    def _forget(self, stream: LabStream) -> None:
        if stream is self._stream:
            self._cut = ""
        self._mirror.forget(stream)

    async def _opened(self) -> LabStream:
        where, name = self._chosen.where, self._chosen.lab.name
        async with clusters.explain_local_errors(where):
            self._embedded = clusters.Embedded.of(where)
            client = self._client = Client(await clusters.resolve(where))
            reload = clusters.reloader(lambda: where, client)

            async def look(error: ClusterError) -> None:
                if not self._has_ended():
                    await reload(error)

            self._cluster = client.cluster.name
            namespace = where.namespace or client.namespace
            # Most find a lab that runs, and need not look at all of it.
            if not await lifecycle.is_running(client, namespace, name):
                await lifecycle.up(client, self._chosen.lab.within(namespace), progress=self._report)
            return await LabStream.open(
                client,
                namespace,
                name,
                reload=look,
                interrupted=self._interrupted,
                restored=self._restored,
                take=self._take,
                accept=self._accept,
            )

    async def _close_stream(self) -> None:
        if self._stream is not None:
            await self._mirror.close()
            await self._stream.close()
            self._stream = None
        if self._client is not None:
            await self._client.__aexit__(None, None, None)
            self._client = None

    def _take(self, message: dict[str, Any]) -> None:
        if (kernel := self._kernels.get(str(message.get("kernel")))) is not None:
            kernel.take(message)
        else:
            self._mirror.take(message, {each.request.kernel_id: each.request.pid for each in self._kernels.values()})

    def _accept(self, channel: StreamChannel, request: dict[str, Any]) -> None:
        kernel = self._kernels.get(str(request.get("kernel")))
        if kernel is None:
            channel.close()
        else:
            kernel.accept(channel)

    def _interrupted(self, reason: str) -> None:
        if self._has_ended():
            return
        self._cut = reason
        self._report(f"The connection is cut; the kernel goes on. {reason}")

    def _restored(self, _seconds: float) -> None:
        self._cut = ""
        self._report("")

    def _has_ended(self) -> bool:
        """Return whether the embedded cluster has ended, and the kernels with it: no cut that one waits for."""
        if self._embedded is None or self._stream is None or not self._embedded.has_ended():
            return False
        self._stream.lose(ConnectionLost("The embedded cluster has ended."))
        return True

    def _report(self, words: str) -> None:
        for kernel in self._kernels.values():
            kernel.report(words, self._cluster)

    async def close(self) -> None:
        """End what is left."""
        await tasks.stop(*self._running)
        await self._close_stream()


async def _serve(chosen: KernelSettings, lock: int, name: str, request: KernelRequest | None) -> None:
    near = NearEnd(chosen, f"{registry.this_host()} {name}")
    doorbell = Doorbell(lock, name, near.start)
    try:
        if request is not None:
            near.start(request)
        else:
            await near.end_earlier()
        serving = asyncio.create_task(near.until_idle())
        # At the end of a login the kernels end, too.
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    finally:
        doorbell.close()
        await near.close()


def _become_daemon(log: Path) -> None:
    """Let go of the first front end's streams, which would wait for this process."""
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, descriptor in ((0, null), (1, output), (2, output)):
        os.dup2(descriptor, number)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def main(arguments: Sequence[str], request: KernelRequest | None, lock: int) -> None:
    """Run the near end of a lab until it has nothing to do.

    Args:
      arguments: Those of the kernelspec's program.
      request: The first kernel; None for what follows one that was killed.
      lock: From :func:`~pathways_jupyter.kernel.handover.taken`.
    """
    chosen = kernel_settings.parse(arguments)
    path = handover.path_of(arguments)
    log = path.with_suffix(".log")
    _become_daemon(log)
    process_setup.keep_freed_memory()
    claim_package()
    with process_setup.without_certificates():
        preload()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(chosen, lock, path.with_suffix(".sock").name, request))
    for each in (log, path):
        each.unlink(missing_ok=True)
