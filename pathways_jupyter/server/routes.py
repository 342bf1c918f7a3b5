"""The REST routes of the sidebar, in one table at the end.

There is no route that attaches a notebook to a job: like every other connection that begins in the sidebar, that is a
cell (``%pathways connect --job NAME``), so that the notebook says what it runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.server import quickstart, scope
from pathways_jupyter.server.handlers import Route, RouteRequest
from pathways_jupyter.server.request_checks import RELOAD, object_name
from pathways_jupyter.server.server_state import LOG_LINES, contexts
from pathways_jupyter.service import jobs
from pathways_jupyter.service.pathwaysjob import conditions
from pathways_jupyter.session.protocol import Method

Json = dict[str, Any]
Lines = AsyncGenerator[str, None]

_MOST_PROFILE_SECONDS = 60


async def _version(request: RouteRequest) -> Json:
    """Return the version of the server extension, for a page to check that it matches."""
    return {"version": version("pathways_jupyter")}


async def _contexts(request: RouteRequest) -> Json:
    """Return the contexts and profiles that a notebook can connect to, and whether the embedded cluster is running."""
    return await asyncio.to_thread(contexts)


async def _services(request: RouteRequest) -> Json:
    """Return the services of a cluster with their free slices."""
    return {"services": await request.server_state.services(scope.parse(request.parameters))}


async def _act_on_session(request: RouteRequest, session: str, action: str) -> Json:
    """Disconnect, reconnect or suspend a session, or count it as used."""
    return {"result": await request.server_state.act(session, Method(action))}


async def _arrays(request: RouteRequest, session: str) -> Json:
    """Return the number of arrays that a session's kernel has on its devices, and their bytes; null if not known."""
    return {"arrays": await request.server_state.act(session, Method.ARRAYS)}


async def _profile(request: RouteRequest, session: str) -> Json:
    """Trace a session's chips while the page waits; return what they did as HTML, and where the trace is."""
    seconds = request.parameters.get("seconds")
    if type(seconds) is not int or not 1 <= seconds <= _MOST_PROFILE_SECONDS:
        raise ConfigError(f"seconds must be from 1 to {_MOST_PROFILE_SECONDS}.", hint=RELOAD)
    view = await request.while_connected(request.server_state.profile(session, seconds))
    return {"html": view.html, "location": view.value.location}


async def _sweep(request: RouteRequest) -> Json:
    """Remove stale proxies of this user, or only list them."""
    dry_run = scope.flag("dry_run", request.parameters.get("dry_run", True))
    return {"removed": await request.server_state.sweep(scope.parse(request.parameters), dry_run=dry_run)}


async def _log(request: RouteRequest) -> Lines:
    """Return a pod's log; a followed one goes on until the container ends."""
    parameters = request.parameters
    if not parameters.get("pod"):
        raise ConfigError("The name of the pod is missing.", hint="Add ?pod=NAME.")
    where, pod = scope.parse(parameters), object_name(parameters["pod"], "pod")
    return request.server_state.log(where, pod, follow=_follows(request))


async def _job(request: RouteRequest, job: str) -> Json:
    """Return a job with its conditions, pods and latest events."""
    where, name = scope.parse(request.parameters), object_name(job, "job")
    async with await scope.client(where) as client:
        details = await jobs.details(client, name, namespace=client.namespace)
    answer = asdict(details)
    answer["job"]["tone"] = conditions.TONES[details.job.state]
    return answer


async def _change_job(request: RouteRequest, job: str, action: str) -> Json:
    """Suspend, resume or delete a job; the page asks before it deletes one."""
    where, name = scope.parse(request.parameters), object_name(job, "job")
    async with await scope.client(where) as client:
        if action == "delete":
            return {"deleted": await jobs.delete(client, name, namespace=client.namespace)}
        await jobs.suspend(client, name, namespace=client.namespace, suspended=action == "suspend")
        return {"suspended": action == "suspend"}


async def _job_log(request: RouteRequest, job: str) -> Lines:
    """Return the log of a job's own program; a followed one goes on until the program ends."""
    where, name, follow = scope.parse(request.parameters), object_name(job, "job"), _follows(request)

    async def lines() -> Lines:
        async with await scope.client(where) as client:
            log = jobs.log(client, name, namespace=client.namespace, follow=follow, tail=LOG_LINES)
            async with contextlib.aclosing(log):
                async for line in log:
                    yield line

    return lines()


async def _start_embedded_cluster(request: RouteRequest) -> Json:
    """Start it, unless it runs already; return the number of its slices by type, once all are ready."""
    from pathways_jupyter.local import cluster

    running = (await asyncio.to_thread(cluster.ensure)).cluster
    await asyncio.to_thread(running.wait)
    return {"slices": dict(running.settings.instances)}


async def _quickstart(request: RouteRequest) -> Json:
    """Put the quickstart notebook into the user's files, unless it is there already."""
    return {"path": await quickstart.write(request.contents_manager)}


def _follows(request: RouteRequest) -> bool:
    return scope.flag("follow", request.parameters.get("follow") or "false")


ROUTES = (
    Route("GET", "version", _version),
    Route("GET", "contexts", _contexts),
    Route("GET", "services", _services, scope.NAMES),
    Route("POST", r"sessions/([0-9a-z-]+)/(disconnect|reconnect|suspend|keep)", _act_on_session),
    Route("GET", r"sessions/([0-9a-z-]+)/arrays", _arrays),
    Route("POST", r"sessions/([0-9a-z-]+)/profile", _profile, ("seconds",)),
    Route("POST", "sweep", _sweep, (*scope.NAMES, "dry_run")),
    Route("GET", "logs", _log, (*scope.NAMES, "pod", "follow")),
    Route("GET", r"jobs/([^/]+)", _job, scope.NAMES),
    Route("GET", r"jobs/([^/]+)/logs", _job_log, (*scope.NAMES, "follow")),
    Route("POST", r"jobs/([^/]+)/(suspend|resume|delete)", _change_job, scope.NAMES),
    Route("POST", "embedded", _start_embedded_cluster),
    Route("POST", "quickstart", _quickstart),
)
