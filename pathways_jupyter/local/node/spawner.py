"""Client of the fork server: start processes, signal them, wait for their end.

When a fork server dies, its processes die too (they are reported as killed) and a new one is started, so that a crash
costs only restarted containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from pathways_jupyter.base import json_lines
from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.node import orphans, zygote
from pathways_jupyter.local.node.zygote import SpawnRequest

_log = logging.getLogger(__name__)

KILLED = 128 + signal.SIGKILL
"""Exit code of a process that SIGKILL ended."""

_SINGLE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_NOT_INHERITED = ("IFRT_", "JAX_", "XLA_")


class Process:
    """One process that the fork server started."""

    def __init__(self, spawner: Spawner, name: str) -> None:
        self._spawner = spawner
        self._name = name
        self.pid = 0
        self.started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        """Return the exit code; 128 + signal when a signal ended it."""
        return await asyncio.shield(self.ended)

    def send_signal(self, number: int, *, group: bool = False) -> None:
        """Signal the process, or its whole group; no-op when it has ended."""
        if not self.ended.done():
            self._spawner._send({"id": self._name, "signal": int(number), "group": group}, ())


@dataclass
class _Link:
    """One running fork server."""

    program: subprocess.Popen[bytes]
    requests: socket.socket
    life: int
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    queue: asyncio.Queue[tuple[bytes, tuple[int, ...]]] = field(default_factory=asyncio.Queue)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Spawner:
    """Starts processes through a fork server of its own.

    Args:
      preload: Called in the fork server before it forks for the first time, to import what the programs need.
      log: File that the fork server's own messages go to.
    """

    def __init__(self, preload: Callable[[], None] | None = None, *, log: Path | None = None) -> None:
        self._preload = preload
        self._log = log
        self._link: _Link | None = None
        self._processes: dict[str, Process] = {}
        self._names = itertools.count()
        self._closing = False
        self._broken = False

    def start(self) -> None:
        """Start the fork server; it becomes ready on its own.

        Raises:
          OSError: The interpreter cannot be started.
        """
        # Three connections: requests (which carry descriptors), reports, and a pipe that only shows that this process
        # lives. Each closes when this process ends, however it ends.
        requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        reports, reports_write = os.pipe()
        life_read, life = os.pipe()
        inherited = (theirs.fileno(), reports_write, life_read)
        # Without the user's settings for JAX, and with single-threaded libraries.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        environment |= dict.fromkeys(_SINGLE_THREAD, "1")
        with contextlib.ExitStack() as stack:
            for descriptor in (reports_write, life_read):
                stack.callback(os.close, descriptor)
            stack.enter_context(theirs)
            messages: IO[bytes] | int = subprocess.DEVNULL
            if self._log is not None:
                messages = stack.enter_context(self._log.open("ab"))
            preload = () if self._preload is None else (zygote.function_name(self._preload),)
            program = subprocess.Popen(
                [sys.executable, "-P", "-m", zygote.__name__, *map(str, inherited), *preload],
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                pass_fds=inherited,
                start_new_session=True,
                env=environment,
            )
        requests.setblocking(False)
        link = self._link = _Link(program, requests, life)
        link.tasks = [
            asyncio.create_task(self._read(link, os.fdopen(reports, "rb", buffering=0))),
            asyncio.create_task(self._write(link)),
        ]

    async def spawn(self, request: SpawnRequest, streams: Sequence[int]) -> Process:
        """Start a process.

        Args:
          streams: Descriptors to become 0, 1 and 2. They stay the caller's to close.

        Raises:
          LocalClusterError: The cluster is shutting down, or the fork server cannot be started.
        """
        if self._broken:
            raise LocalClusterError(f"The fork server cannot be started; the reason is in {self._log or 'its output'}.")
        if self._closing or self._link is None:
            raise LocalClusterError("The cluster is shutting down; no process can be started.")
        identity = f"{next(self._names)}"
        # Known before its request is sent: if the fork server dies now, it counts as killed like the others.
        process = self._processes[identity] = Process(self, identity)
        # Copies, because the request is sent by another task, after the caller may have closed its own.
        copies = tuple(os.dup(each) for each in streams)
        self._send({**asdict(request), "id": identity, "descriptors": len(copies)}, copies)
        # Shielded, because it is started even if the caller is cancelled, and the report needs the future.
        process.pid = await asyncio.shield(process.started)
        return process

    async def close(self) -> None:
        """End the fork server and everything that it started, and wait until they are gone."""
        self._closing = True
        if (link := self._link) is not None:
            if not link.ready.is_set():
                # It has started nothing yet, and reads no request before its imports are done.
                link.program.kill()
            # The fork server reads the end of its requests, kills what it has started, and ends.
            link.requests.shutdown(socket.SHUT_RDWR)
            await asyncio.gather(*link.tasks, return_exceptions=True)

    def _send(self, message: Mapping[str, object], descriptors: tuple[int, ...]) -> None:
        if self._link is None:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        self._link.queue.put_nowait((json_lines.encode(message), descriptors))

    async def _write(self, link: _Link) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data, descriptors = await link.queue.get()
            try:
                if descriptors:
                    # The descriptors travel with the first bytes; the rest of the line needs none.
                    sent = await _send_with(link.requests, data, descriptors)
                    data = data[sent:]
                await loop.sock_sendall(link.requests, data)
            except OSError:
                return
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    async def _read(self, link: _Link, pipe: IO[bytes]) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while line := await reader.readline():
                self._handle(link, json_lines.decode(line))
        finally:
            transport.close()
            await self._ended(link)

    def _handle(self, link: _Link, report: Mapping[str, int | str]) -> None:
        if "ready" in report:
            if report["ready"] != 1:
                _log.error(
                    "The fork server has %s threads instead of one; processes that it forks may hang.", report["ready"]
                )
            link.ready.set()
            return
        process = self._processes.get(str(report["id"]))
        if process is None:
            return
        if "pid" in report:
            process.pid = int(report["pid"])
            process.started.set_result(process.pid)
        else:
            del self._processes[str(report["id"])]
            process.ended.set_result(int(report["code"]))

    async def _ended(self, link: _Link) -> None:
        """Handle the end of the fork server: kill its processes, start a new server, report the processes as killed."""
        current = asyncio.current_task()
        for task in link.tasks:
            if task is not current:
                task.cancel()
        link.requests.close()
        os.close(link.life)
        # Reaping may block, since the pipe closes before the process has ended.
        code = await asyncio.to_thread(link.program.wait)
        self._link = None
        # One that ended before it became ready would do so again: do not restart it in a loop.
        self._broken = not link.ready.is_set()
        link.ready.set()
        # Those whose request was never read are among them.
        lost, self._processes = self._processes, {}
        for process in lost.values():
            if process.pid:
                orphans.kill_group(process.pid)
        if not self._closing:
            _log.error("The fork server ended with code %s; its %s processes were killed.", code, len(lost))
            if not self._broken:
                self.start()
        # Requests of processes that count as killed: only their descriptors are left.
        while not link.queue.empty():
            for descriptor in link.queue.get_nowait()[1]:
                os.close(descriptor)

        # Last: on these ends containers are started again, which needs the new fork server.
        for process in lost.values():
            if not process.started.done():
                process.started.set_result(0)
            process.ended.set_result(KILLED)


async def _send_with(connection: socket.socket, data: bytes, descriptors: tuple[int, ...]) -> int:
    """Send the beginning of `data` with `descriptors` attached; return the number of bytes sent."""
    loop = asyncio.get_running_loop()
    # asyncio has no counterpart of sendmsg with ancillary data, so this waits for the socket itself.
    while True:
        try:
            return socket.send_fds(connection, [data], descriptors)
        except BlockingIOError:
            writable = asyncio.Event()
            loop.add_writer(connection, writable.set)
            try:
                await writable.wait()
            finally:
                loop.remove_writer(connection)
