"""XProf in a tab: a process for each directory of traces that is looked at, and its pages behind this server's login.

The pages' scripts run with the rights of this server's own pages, as those of other extensions do. XProf draws with
Google Charts, which its pages load from Google.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from tornado import web

from pathways_jupyter.base import packages, runtime_files
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.profile import bucket
from pathways_jupyter.server import request_checks
from pathways_jupyter.session import clusters

PAGES = "data/plugin/profile"
"""What XProf's own paths begin with; its pages find out by it where they are."""
_START_SECONDS = 60.0
_ANSWER_SECONDS = 600.0
"""XProf may have to download and convert a large trace before it answers."""
_HEADERS = ("Content-Type", "Content-Encoding", "Content-Security-Policy", "Cache-Control")


@dataclass
class _Process:
    process: asyncio.subprocess.Process
    directory: Path
    client: aiohttp.ClientSession


class XProf:
    """The XProf processes of one Jupyter server; used on its event loop only."""

    def __init__(self) -> None:
        self._starting = asyncio.Lock()
        self._processes: dict[str, _Process] = {}

    async def open(self, location: str) -> str:
        """Start XProf for the trace in `location`, unless it runs; return its key in the pages' addresses.

        Raises:
          ConfigError: It is no directory in a bucket, or XProf is not installed.
          PathwaysError: XProf did not start.
        """
        bucket.check(location)
        packages.require("profile", "XProf", "xprof")
        traces = location.partition("/plugins/profile")[0]
        key = hashlib.sha256(traces.encode()).hexdigest()[:16]
        async with self._starting:
            if (found := self._processes.get(key)) is not None and found.process.returncode is None:
                return key
            await self._remove(key)
            self._processes[key] = await self._start(traces)
        return key

    async def _start(self, traces: str) -> _Process:
        directory = runtime_files.socket_directory("pathways-xprof-", "s")
        socket = str(directory / "s")
        log, storage = directory / "log", await asyncio.to_thread(clusters.storage_of, traces)
        with log.open("wb") as errors:
            # It ends when its standard input does, so also when this server is killed.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "pathways_jupyter.profile.xprof_server", traces, socket),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(storage.variables if storage is not None else {})},
                start_new_session=True,
            )
        client = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(socket),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
        )
        started = _Process(process, directory, client)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_SECONDS):
                ready = await process.stdout.readline()
        except BaseException:
            await _end(started)
            raise
        if not ready:
            said = log.read_text(errors="replace").strip().rpartition("\n")[2]
            await _end(started)
            raise PathwaysError(f"XProf did not start: {said}", hint="Run pip install 'pathways_jupyter[profile]'.")
        return started

    async def get(self, key: str, path: str, query: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and content of one of its pages.

        Raises:
          KeyError: It is not running.
          aiohttp.ClientError: It has ended meanwhile.
        """
        address = f"http://xprof/{path}{'?' if query else ''}{query}"
        async with self._processes[key].client.get(address, allow_redirects=False) as answer:
            headers = {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
            return answer.status, headers, await answer.read()

    async def close(self) -> None:
        """End all processes."""
        for key in list(self._processes):
            await self._remove(key)

    async def _remove(self, key: str) -> None:
        if (found := self._processes.pop(key, None)) is not None:
            await _end(found)


async def _end(started: _Process) -> None:
    await started.client.close()
    with contextlib.suppress(ProcessLookupError):
        started.process.kill()
    await started.process.wait()
    shutil.rmtree(started.directory, ignore_errors=True)


class XProfPages(request_checks.SameSiteMixin, JupyterHandler):  # type: ignore[misc]  # it comes without types
    """XProf's pages."""

    def initialize(self, xprof: XProf) -> None:
        """Called by tornado."""
        self._xprof = xprof

    @web.authenticated
    @authorized(resource=request_checks.RESOURCE)  # type: ignore[untyped-decorator]
    async def get(self, key: str, path: str) -> None:
        """Called by tornado."""
        try:
            status, headers, content = await self._xprof.get(key, path, self.request.query)
        except (KeyError, aiohttp.ClientError):
            # In a page of its own: Jupyter's shows no reason.
            status, headers = 404, {"Content-Type": "text/plain"}
            content = b"XProf has ended, as it was not used. Open the trace again."
        self.set_status(status)
        for name, value in headers.items():
            self.set_header(name, value)
        await self.finish(content)
