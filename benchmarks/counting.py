"""A proxy between a client and an API server that counts requests, since the server does not report them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from pathways_jupyter.kube import auth

_OF_ONE_HOP = {"host", "connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Counted:
    """Requests that a counting API server has passed on.

    Attributes:
      kubeconfig: Leads through here.
      watches: Watches that are open now, by resource.
      asked: All requests so far, by method and path.
    """

    kubeconfig: str
    watches: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, true: Callable[[Mapping[str, int]], bool]) -> None:
        """Wait until `true` holds of the open watches."""
        while not true(self.watches):
            self._changed.clear()
            await self._changed.wait()

    def opened(self, resource: str) -> None:
        """Count a new watch of `resource`."""
        self.watches[resource] += 1
        self._changed.set()

    def closed(self, resource: str) -> None:
        """Count the end of a watch of `resource`."""
        self.watches = +(self.watches - Counter((resource,)))
        self._changed.set()


@asynccontextmanager
async def counting(kubeconfig: str, directory: Path) -> AsyncIterator[Counted]:
    """Count for the current context of `kubeconfig`; keep a kubeconfig of its own in `directory`."""
    cluster = auth.load(kubeconfig)
    counted = Counted(str(directory / "counted"))
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            path = request.rel_url.path
            counted.asked[f"{request.method} {path}"] += 1
            watched = path.rpartition("/")[2] if request.query.get("watch") else ""
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_ONE_HOP}
            async with session.request(
                request.method,
                cluster.server + request.raw_path,
                headers=headers,
                data=await request.read(),
                ssl=cluster.ssl or True,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_ONE_HOP}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                if watched:
                    counted.opened(watched)
                try:
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                finally:
                    if watched:
                        counted.closed(watched)
                await response.write_eof()
                return response

        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", forward)
        # A client that goes ends its watch, here and at the API server.
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            _write(kubeconfig, counted.kubeconfig, f"http://127.0.0.1:{port}")
            yield counted
        finally:
            await runner.cleanup()


def _write(original: str, copy: str, server: str) -> None:
    config = yaml.safe_load(Path(original).read_text(encoding="utf-8"))
    for entry in config["clusters"]:
        entry["cluster"] = {"server": server}
    Path(copy).write_text(json.dumps(config), encoding="utf-8")
