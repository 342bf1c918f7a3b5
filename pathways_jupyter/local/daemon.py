"""Daemon process of a cluster: serves until it is asked to stop or has been idle for too long.

Started by :mod:`~pathways_jupyter.local.cluster` in a session of its own. SIGTERM and SIGINT stop it. When it is
killed, its fork servers see their pipes close and kill every other process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import logging.handlers
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.base import json_lines, process_setup, tasks
from pathways_jupyter.base.errors import LocalClusterError, PathwaysError
from pathways_jupyter.local.control import DaemonRequest
from pathways_jupyter.local.directory import ClusterDirectory, DaemonRecord, named
from pathways_jupyter.local.node import programs
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.settings import ClusterSettings

_log = logging.getLogger(__name__)

LOG = "daemon.log"
"""The daemon's log, in the cluster's directory."""
_LOG_BYTES = 1024 * 1024
_LOST_SECONDS = 20.0
_STARTING_SECONDS = 60.0
"""A cluster that still starts is in use for so long: on a busy machine the client that began it asks late."""
_OPEN_FILES = 16_384


class Daemon:
    """Runs one cluster.

    Args:
      place: The cluster's directory; this process holds its lock already.
    """

    def __init__(self, directory: ClusterDirectory, settings: ClusterSettings) -> None:
        self._directory = directory
        # First, because it takes longest: the fork server imports JAX while this process imports the API server.
        warm, cold = (
            Spawner(each, log=directory.path / "zygote.log") for each in (programs.preload_jax, programs.preload)
        )
        warm.start()
        cold.start()
        # Watches and tunnels need many files; pods keep the inherited limit.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
        # This process is never an HTTP client.
        with process_setup.without_certificates():
            from pathways_jupyter.local.running import RunningCluster

        self._cluster = RunningCluster(directory.path, settings, cold=cold, warm=warm, record=self._record_change)
        self._control = self._cluster.network.sockets("control") / "c"
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._stop_reason = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._awaiting_ready: asyncio.Task[None] | None = None
        self._stop_requests: list[asyncio.StreamWriter] = []
        self._waiting = 0

    async def run(self, report: Any) -> None:
        """Serve until the end; `report` is called with a record once the API listens.

        Raises:
          PathwaysError: The cluster cannot be started.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, f"received {number.name}")
        server = await asyncio.start_unix_server(self._accept, self._control, limit=json_lines.MAX_BYTES)
        try:
            await self._cluster.start()
        except BaseException:
            server.close()
            raise
        try:
            report(self._write_record(self._cluster.settings))
            self._awaiting_ready = self._spawn(self._await_ready())
            self._spawn(self._watch_idleness())
            await self._stopping.wait()
            _log.info("Ending: %s.", self._stop_reason)
        finally:
            for task in list(self._tasks):
                task.cancel()
            server.close()
            await self._cluster.close()
        self._directory.clear()

    def _write_record(self, settings: ClusterSettings) -> DaemonRecord:
        elsewhere = tuple(map(str, self._cluster.network.roots))
        record = DaemonRecord(os.getpid(), self._cluster.api.port, str(self._control), elsewhere, settings)
        self._directory.write(record)
        return record

    def _record_change(self, settings: ClusterSettings) -> None:
        # A cluster that stays as it is needs no space on disk.
        if settings != self._cluster.settings:
            self._write_record(settings)

    def _stop(self, why: str) -> None:
        self._stop_reason = self._stop_reason or why
        self._stopping.set()

    async def _await_ready(self) -> None:
        await self._cluster.until_ready()
        self._ready.set()

    async def _watch_idleness(self) -> None:
        """End the cluster once it has been idle for long enough, or its directory is gone."""
        loop = asyncio.get_running_loop()
        started, idle_seconds = loop.time(), self._cluster.settings.idle_seconds
        used = started
        while True:
            # Wake up often enough to notice a removed directory: clients cannot find such a cluster any more.
            await asyncio.sleep(min(max(used + idle_seconds - loop.time(), 0.05), _LOST_SECONDS))
            if not self._directory.kubeconfig.exists():
                self._stop("its directory was removed")
                return
            used = max(used, self._cluster.api.last_used)
            starting = not self._ready.is_set() and loop.time() < started + _STARTING_SECONDS
            if self._cluster.busy or self._waiting or starting:
                used = loop.time()
            if loop.time() - used >= idle_seconds:
                self._stop(f"idle for {idle_seconds:g} s")
                return

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json_lines.decode(await reader.readline())
            order = DaemonRequest(request["order"])
        except (ValueError, KeyError, TypeError):
            await _send(writer, {"error": f"Unknown request; the daemon serves {', '.join(DaemonRequest)}."})
            writer.close()
            return
        try:
            if order is DaemonRequest.STOP:
                # Left open on purpose: it closes with this process, which is how the client sees that it has ended.
                self._stop_requests.append(writer)
                self._stop("stop requested")
                return
            if order is DaemonRequest.GROW:
                await self._grow(request, reader, writer)
                return
            if order is DaemonRequest.WAIT:
                waited, _ = await tasks.first_done(self._wait(), _line(reader))
                if waited is None:
                    # The client has given up, and keeps the cluster no longer.
                    writer.close()
                    return
                waited.result()
            answer = await self._answer(order, request)
        except PathwaysError as error:
            answer = {"error": str(error), "hint": error.hint}
        except Exception as error:
            _log.exception("The request %s failed.", order.value)
            answer = {
                "error": f"The request {order.value} of the embedded cluster failed: {type(error).__name__}: {error}.",
                "hint": f"The details are in {self._directory.path / LOG}.",
            }
        await _send(writer, answer)
        writer.close()

    async def _grow(
        self, request: Mapping[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Grow, and shrink again if the client goes before it owns what was added."""
        before = self._cluster.settings
        owned = asyncio.create_task(_line(reader))
        try:
            growing, _ = await tasks.first_done(
                self._cluster.grow(
                    request["instances"], request["spare"], free=request["free"], unbounded=request["unbounded"]
                ),
                owned,
            )
            if growing is None:
                writer.close()
                return
            hosts = growing.result()
            self._note_change(before)
            await _send(writer, {"hosts": hosts} if hosts else {"before": dict(before.instances)})
            added = self._cluster.settings
            if not await owned and added != before:
                await self._cluster.shrink(before.instances, added.instances)
                self._note_change(added)
            writer.close()
        finally:
            owned.cancel()

    async def _wait(self) -> None:
        """Wait until every service is ready, or has failed for good."""
        # Counted, so that the cluster does not end as idle while a client waits for it.
        self._waiting += 1
        try:
            await self._ready.wait()
            async with self._cluster.changing:
                pass
        finally:
            self._waiting -= 1
        for service, why in self._cluster.failed.items():
            name = named(self._directory.name)
            raise LocalClusterError(
                f"Service {service} of the embedded cluster has failed for good: {why}.",
                hint=f"Restart it: pathways-jupyter local down{name}, then pathways-jupyter local up{name}.",
            )

    async def _answer(self, order: DaemonRequest, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if order is DaemonRequest.SHRINK:
            before = self._cluster.settings
            shrunk = await self._cluster.shrink(request["before"], request["after"])
            self._note_change(before)
            return {"shrunk": shrunk}
        elif order is DaemonRequest.RESTART_API:
            await self._cluster.restart_api(float(request.get("away", 0.0)))
        return {
            "ready": self._ready.is_set(),
            "busy": self._cluster.busy,
            "work": self._cluster.work,
            "services": list(self._cluster.services),
            "failed": self._cluster.failed,
            "instances": dict(self._cluster.settings.instances),
        }

    def _note_change(self, before: ClusterSettings) -> None:
        """Wait for the cluster's services anew, if it has grown or shrunk."""
        if self._cluster.settings == before:
            return
        self._ready.clear()
        if self._awaiting_ready is not None:
            self._awaiting_ready.cancel()
        self._awaiting_ready = self._spawn(self._await_ready())

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("A part of the cluster failed.", exc_info=error)

        task: asyncio.Task[None] = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(done)
        return task


async def _send(writer: asyncio.StreamWriter, answer: Mapping[str, Any]) -> None:
    with contextlib.suppress(ConnectionError):
        writer.write(json_lines.encode(answer))
        await writer.drain()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; empty if the client has gone."""
    try:
        return await reader.readline()
    except ConnectionError:
        return b""


def main(argv: list[str]) -> int:
    """Run ``daemon.py NAME READY ALIVE SETTINGS``: two inherited descriptors and a JSON object.

    READY receives one JSON line: the API's port, or an error. ALIVE is the lock that this process holds for as long as
    it lives.
    """
    # Double fork, together with the Popen of the caller: init reaps the daemon, so that the caller need not.
    if os.fork():
        os._exit(0)
    import uvloop

    name, ready, alive, text = argv
    directory = ClusterDirectory(name)

    def report(answer: DaemonRecord | PathwaysError) -> None:
        if isinstance(answer, DaemonRecord):
            line: dict[str, Any] = {"port": answer.port}
        else:
            line = {"error": str(answer), "hint": answer.hint}
        try:
            with open(int(ready), "wb") as pipe:
                pipe.write(json_lines.encode(line))
        except OSError:
            # The process that started this one has given up, and no other process knows of this cluster.
            if isinstance(answer, DaemonRecord):
                signal.raise_signal(signal.SIGTERM)

    async def run() -> None:
        await Daemon(directory, ClusterSettings(**json.loads(text))).run(report)

    try:
        os.write(int(alive), str(os.getpid()).encode("ascii"))
        handler = logging.handlers.RotatingFileHandler(directory.path / LOG, maxBytes=_LOG_BYTES, backupCount=1)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        os.umask(0o077)
        os.chdir(directory.path)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except PathwaysError as error:
        _log.error("%s", error)
        report(error)
        return 1
    except OSError as error:
        # On a full disk there is no space for a traceback.
        where = f"Its files are in {directory.path}: free some space there, or set JUPYTER_RUNTIME_DIR to another one."
        report(LocalClusterError(f"The embedded cluster did not start: {error.strerror or error}.", hint=where))
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
