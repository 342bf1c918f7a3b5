"""The routes for jobs: list them, show one, read its logs, suspend, resume and delete it.

There is no route that attaches a notebook to a job: like every other connection that begins in the sidebar, that is a
cell (``%pathways job connect NAME``), so that the notebook says what it runs on.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import asdict
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.server import request_checks, scope
from pathways_jupyter.server.handlers import Handler, StreamHandler, route, scope_in
from pathways_jupyter.server.hub import LOG_LINES
from pathways_jupyter.server.scope import Scope
from pathways_jupyter.service import jobs


class JobsHandler(Handler):
    """The jobs of a namespace."""

    @route
    async def get(self) -> Any:
        """Return the jobs, the newest first."""
        async with _reached(scope_in(self.query(*scope.NAMES))) as (client, namespace):
            return {"jobs": [asdict(each) for each in await jobs.list_jobs(client, namespace)]}


class JobHandler(Handler):
    """One job."""

    @route
    async def get(self, job: str) -> Any:
        """Return the job with its conditions, pods and latest events."""
        place, name = scope_in(self.query(*scope.NAMES)), request_checks.object_name(job, "job")
        async with _reached(place) as (client, namespace):
            return asdict(await jobs.picture(client, name, namespace=namespace))


class JobActionHandler(Handler):
    """The actions on a job; deleting is asked first by the page."""

    @route
    async def post(self, job: str, action: str) -> Any:
        """Suspend, resume or delete it."""
        self.query()
        place, name = scope_in(self.body(*scope.NAMES)), request_checks.object_name(job, "job")
        async with _reached(place) as (client, namespace):
            if action == "delete":
                return {"deleted": await jobs.delete(client, name, namespace=namespace)}
            await jobs.suspend(client, name, namespace=namespace, suspended=action == "suspend")
            return {"suspended": action == "suspend"}


class JobLogsHandler(StreamHandler):
    """Logs of a job's programs, which need no name of a pod."""

    @route
    async def get(self, job: str) -> Any:
        """Stream a log as text; a followed one goes on until the program ends."""
        given = self.query(*scope.NAMES, "program", "worker", "follow")
        name, program = request_checks.object_name(job, "job"), given.get("program") or "main"
        if program not in jobs.PROGRAMS:
            raise ConfigError("There is no such program in a job.", hint=f"Choose {', '.join(jobs.PROGRAMS)}.")
        worker = request_checks.worker(given.get("worker") or "0-0")
        follow = scope.flag("follow", given.get("follow") or "false")
        await self.stream(_lines(scope_in(given), name, program, worker, follow))


async def _lines(place: Scope, name: str, program: str, worker: str, follow: bool) -> AsyncGenerator[str, None]:
    async with _reached(place) as (client, namespace):
        found = jobs.log(
            client, name, namespace=namespace, program=program, which=worker, follow=follow, tail=LOG_LINES
        )
        async with contextlib.aclosing(found):
            async for line in found:
                yield line


@contextlib.asynccontextmanager
async def _reached(place: Scope) -> AsyncIterator[tuple[Client, str]]:
    """A client of the cluster of `place`, and the namespace."""
    cluster = (await scope.resolve(place)).cluster
    async with Client(cluster) as client:
        yield client, cluster.namespace
