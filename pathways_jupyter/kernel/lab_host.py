"""The first process of a lab's pod: it runs the kernels of other machines, and JupyterLab.

It listens on the pod's loopback interface, behind the relay, which asks for the lab's secret. Each stream belongs to
the near end of one machine's kernels, or to a ``lab up``: its channels lead to the kernels' sockets, to the control
sockets of their sessions, or to JupyterLab. A kernel ends with its stream, which the relay keeps through a cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pathways_jupyter.base import runtime_files, tasks
from pathways_jupyter.base.config import runtime_dir
from pathways_jupyter.base.errors import ClusterError
from pathways_jupyter.kernel import received
from pathways_jupyter.kernel.hosted_kernel import HostedKernel, SpareKernels, folder_of
from pathways_jupyter.kernel.zmq_handshake import KernelConnection
from pathways_jupyter.session import registry
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.local_connection import LocalConnection
from pathways_jupyter.tunnel.multiplexer import Multiplexer, StreamChannel
from pathways_jupyter.tunnel.relay import sockets

PROTOCOL = 3
"""Changes when the two ends no longer understand each other."""

_QUEUED_BYTES = 64 * 1024 * 1024
"""Output of a kernel that is kept for one socket while the line is cut or slow; then the kernel's own buffers fill."""
_READ_BYTES = 256 * 1024
_SESSIONS_SECONDS = 0.25
_LOG_BYTES = 64 * 1024

logger = logging.getLogger(__name__)


class LabHost:
    """All streams of one lab."""

    def __init__(self) -> None:
        self._kernels: dict[str, HostedKernel] = {}
        self._guests: dict[str, _Guest] = {}
        self._spares = SpareKernels()
        self._spares.prepare()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one stream until its other end closes it, or the relay gives it up."""
        guest = _Guest(self._kernels, self._guests, self._spares, writer)
        try:
            while data := await reader.read(_READ_BYTES):
                guest.channels.feed(data)
        except (OSError, ClusterError) as error:
            logger.info("a stream has ended: %s", error)
        finally:
            await guest.close()
            writer.close()


class _Guest:
    """The other end of one stream."""

    def __init__(
        self,
        kernels: dict[str, HostedKernel],
        guests: dict[str, _Guest],
        spares: SpareKernels,
        writer: asyncio.StreamWriter,
    ) -> None:
        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        self.channels = Multiplexer(send, accept=self._accept, take=self._take, first=2, queued_bytes=_QUEUED_BYTES)
        self._kernels, self._guests, self._spares, self._writer = kernels, guests, spares, writer
        # Also of kernels that have ended: a session may outlive its own.
        self._followed: set[str] = set()
        self._posted: dict[str, SessionRecord] = {}
        self._name = ""
        self._tasks = tasks.Running()

    async def close(self) -> None:
        """End the kernels and every connection."""
        if self._guests.get(self._name) is self:
            del self._guests[self._name]
        mine = [each for each in self._kernels.values() if each.channels is self.channels]
        await asyncio.gather(*(each.end() for each in mine))
        await tasks.stop(*self._tasks)
        await self.channels.close()

    def _take(self, message: dict[str, Any]) -> None:
        if "near" in message:
            self._succeed(str(message["near"]))
        elif "setup" in message:
            self._begin(message["setup"])
        elif (kernel := self._kernels.get(str(message.get("kernel")))) is not None:
            if "signal" in message:
                kernel.signal(int(message["signal"]))
            elif "end" in message:
                # Its sessions are followed to their ends.
                self._tasks.begin(kernel.end())

    def _succeed(self, name: str) -> None:
        """Take the place of a near end of this name, which was killed: the relay takes that for a cut."""
        self._name, earlier = name, self._guests.get(name)
        self._guests[name] = self
        if earlier is not None:
            # Its kernels end with its stream, and their sessions after them.
            self._followed, self._posted = set(earlier._followed), dict(earlier._posted)
            self._tasks.begin(self._follow_sessions())
            earlier._writer.close()

    def _begin(self, setup: dict[str, Any]) -> None:
        """Begin a kernel; known at once, because the next message may end it."""
        name = str(setup["run"])
        if setup.get("protocol") != PROTOCOL:
            last = "the lab's image and this machine have different versions of pathways_jupyter"
            self.channels.post({"kernel": name, "exit": 1, "last": last})
            return
        # Those whose near end was killed, and which the relay still keeps.
        same = [each for each in self._kernels.values() if each.id == setup["id"]]
        try:
            kernel = HostedKernel(setup, self.channels, self._spares)
            # A Jupyter's ids are unique on its machine only: some are numbers of processes.
            earlier = [each for each in same if each.machine == kernel.machine]
            self._kernels[name] = kernel
        except (OSError, KeyError) as error:
            self.channels.post({"kernel": name, "exit": 1, "last": f"it cannot be started: {error}"})
            return
        self._tasks.begin(self._run(name, kernel, earlier))

    async def _run(self, name: str, kernel: HostedKernel, earlier: list[HostedKernel]) -> None:
        if not self._followed:
            self._tasks.begin(self._follow_sessions())
        self._followed.add(kernel.id)
        try:
            for each in earlier:
                await each.end()
            await kernel.run()
        except OSError as error:
            self.channels.post({"kernel": name, "exit": 1, "last": f"it cannot be started: {error}"})
        finally:
            kernel.remove()
            del self._kernels[name]

    def _accept(self, channel: StreamChannel, request: dict[str, Any]) -> None:
        self._tasks.begin(self._connect(channel, request))

    async def _connect(self, channel: StreamChannel, request: dict[str, Any]) -> None:
        kernel = self._kernels.get(str(request.get("kernel")))
        try:
            if kernel is not None:
                kernel.carried.add(channel)
            local = KernelConnection if "socket" in request else LocalConnection
            await portforward.join(channel, functools.partial(self._dial, kernel, request), local)
        except (OSError, ClusterError) as error:
            # A front end tries again, many times in the moment after its kernel's end.
            logger.debug("no connection to %s: %s", request, error)

    async def _dial(
        self, kernel: HostedKernel | None, request: dict[str, Any], protocol: Callable[[], LocalConnection]
    ) -> None:
        loop, path = asyncio.get_running_loop(), ""
        if "files" in request:
            folder = folder_of(request["files"])
            await portforward.dial_thread(functools.partial(received.receive, directory=folder), protocol)
            return
        if kernel is not None:
            path = await kernel.listening(request["socket"])
        elif "session" in request and (record := await asyncio.to_thread(registry.read, request["session"])):
            path = record.socket
        elif "port" in request:
            path = sockets.endpoint(request["port"])
            if not path:
                await loop.create_connection(protocol, "127.0.0.1", request["port"])
                return
        await loop.create_unix_connection(protocol, path)

    async def _follow_sessions(self) -> None:
        """Post the records of the kernels' sessions and their logs, as they change."""
        seen: object = None
        logs: dict[str, int] = {}
        while True:
            now = runtime_files.fingerprint(runtime_dir())
            if now != seen:
                seen = now
                found = await asyncio.to_thread(registry.sessions)
                present = {each.id: each for each in found if each.is_here and each.kernel_id in self._followed}
                for session, record in present.items():
                    if self._posted.get(session) != record:
                        self.channels.post({"session": record.to_json()})
                for session in set(self._posted) - set(present):
                    self.channels.post({"gone": session})
                self._posted = present
            for session, record in self._posted.items():
                text, logs[session] = _read_log(record.log, logs.get(session, 0))
                if text:
                    self.channels.post({"log": session, "text": text})
            await asyncio.sleep(_SESSIONS_SECONDS)


def _read_log(path: str, offset: int) -> tuple[str, int]:
    """Return what was added to a log since `offset`, and the next offset; a log that has grown too long begins anew."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        begin = offset if offset <= size else 0
        file.seek(begin)
        data = file.read(_LOG_BYTES)
        return data.decode(errors="replace"), begin + len(data)
    return "", offset


async def _run(port: int, server: Sequence[str]) -> int:
    """Serve until JupyterLab, which `server` starts, has ended; return its exit code."""
    host = LabHost()
    if path := sockets.endpoint(port):
        # In a directory of this user's own.
        listening = await asyncio.start_unix_server(host.serve, path, limit=_READ_BYTES)
    else:
        listening = await asyncio.start_server(host.serve, "127.0.0.1", port, limit=_READ_BYTES)
    async with listening:
        process = await asyncio.create_subprocess_exec(*server)
        # The kernels end with this process, which they watch.
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, process.terminate)
        return await process.wait()


def main(arguments: Sequence[str]) -> int:
    """Run the host: its port, then the command of JupyterLab."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s host: %(message)s")
    if path := sockets.endpoint(int(arguments[0])):
        # Of a container before this one in the same pod.
        Path(path).unlink(missing_ok=True)
    code = asyncio.run(_run(int(arguments[0]), arguments[1:]))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
