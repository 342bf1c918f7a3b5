"""A way to an API server that tests can cut: a forwarder of TCP connections on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path


class NetworkWay:
    """Forwards connections to one server.

    Args:
      kubeconfig: Of the cluster; :meth:`write` writes one that leads through here.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._content = kubeconfig.read_text()
        found = re.search(r"https://([0-9.]+):(\d+)", self._content)
        assert found is not None
        self._server, self._target = found[0], (found[1], int(found[2]))
        self._loop = asyncio.new_event_loop()
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.open()

    def write(self, path: Path) -> Path:
        """Write a kubeconfig that leads through here."""
        path.write_text(self._content.replace(self._server, f"https://127.0.0.1:{self.port}"))
        path.chmod(0o600)
        return path

    def open(self) -> None:
        """Accept connections, at the same port as before."""
        self._run(self._open())

    def move(self) -> None:
        """Accept connections at another port from now on; previous ones are reset."""
        self.cut()
        self.port = 0
        self.open()

    def reset(self) -> None:
        """Reset all connections; new ones are accepted."""
        self._run(self._reset())

    def cut(self) -> None:
        """Reset all connections, and refuse new ones."""
        self._run(self._cut())

    def freeze(self) -> None:
        """Forward nothing more, without closing anything: a cable that was pulled."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def thaw(self) -> None:
        """Forward again."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def close(self) -> None:
        self.cut()
        self._run(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _reset(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _cut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._reset()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        there = None
        try:
            if self._listener is None:
                # It was accepted before the way was cut, and this task runs only now.
                return
            await self._flows.wait()
            far, there = await asyncio.open_connection(*self._target)
            self._writers.add(there)
            halves = [asyncio.create_task(self._carry(*each)) for each in ((reader, there), (far, writer))]
            await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
            for half in halves:
                half.cancel()
            await asyncio.gather(*halves, return_exceptions=True)
        except OSError:
            pass
        finally:
            for each in (writer, there):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 18):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()


@contextlib.contextmanager
def network_way(kubeconfig: Path) -> Iterator[NetworkWay]:
    """A way to the API server of `kubeconfig`."""
    way = NetworkWay(kubeconfig)
    try:
        yield way
    finally:
        way.thaw()
        way.close()
