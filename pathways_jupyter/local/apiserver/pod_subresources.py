"""Subresources of pods: logs, exec, attach, port-forward, eviction, binding."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web

from pathways_jupyter.local.apiserver import api_errors, bodies
from pathways_jupyter.local.apiserver.columns import seconds_of
from pathways_jupyter.local.apiserver.port_forward import SPDY_PROTOCOL, forward_over_channels, forward_over_spdy
from pathways_jupyter.local.apiserver.remotecommand import attach_over_websocket, exec_over_websocket
from pathways_jupyter.local.apiserver.resources import PODS, Object
from pathways_jupyter.local.apiserver.route import Route, flag, number
from pathways_jupyter.local.apiserver.runtime import PodRuntime
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.connection_bounds import STREAM_IDLE_SECONDS

_REFUSAL_SECONDS = 0.05
"""Longest wait for the error of a followed log, since a log that is still empty yields nothing at all."""


@dataclass(frozen=True)
class Target:
    """The container of a request."""

    pod: Object
    container: str

    @property
    def uid(self) -> str:
        """The pod's."""
        return str(self.pod["metadata"]["uid"])

    @property
    def state(self) -> dict[str, Any]:
        """The container's entry in the pod's status."""
        found = self.pod.get("status") or {}
        for field in ("containerStatuses", "initContainerStatuses"):
            for each in found.get(field) or ():
                if each.get("name") == self.container:
                    return dict(each)
        return {}


class Pods:
    """Serves the subresources of pods.

    Args:
      idle_seconds: How long a port-forward or an exec may be without a message.
    """

    def __init__(self, store: Store, runtime: PodRuntime, *, idle_seconds: float = STREAM_IDLE_SECONDS) -> None:
        self._store = store
        self._runtime = runtime
        self._idle_seconds = idle_seconds

    async def serve(self, request: web.BaseRequest, route: Route) -> web.StreamResponse:
        """Answer one request.

        Raises:
          StatusError: It cannot be done.
        """
        if route.subresource == "log":
            return await self._log(request, route)
        if route.subresource == "eviction":
            return await self._evict(request, route)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise api_errors.bad_request("unable to upgrade: this path needs a WebSocket")
        pod = self.pod(route)
        if route.subresource == "portforward":
            spdy = SPDY_PROTOCOL in request.headers.get("Sec-WebSocket-Protocol", "")
            forward = forward_over_spdy if spdy else forward_over_channels
            return await forward(request, self._runtime, pod, idle_seconds=self._idle_seconds)
        target = self.target(request.query, pod)
        serve = attach_over_websocket if route.subresource == "attach" else exec_over_websocket
        return await serve(request, self._runtime, target.uid, target.container, idle_seconds=self._idle_seconds)

    def pod(self, route: Route) -> Object:
        """The pod of a request.

        Raises:
          StatusError: 404.
        """
        return self._store.record(PODS, route.namespace, route.name).object

    def target(self, query: Mapping[str, str], pod: Object) -> Target:
        """The container of a request: the named one, the annotated default, or the only one.

        Raises:
          StatusError: 400, there is no such container, or several to choose from.
        """
        spec, name = pod["spec"], pod["metadata"]["name"]
        names = [each["name"] for each in spec["containers"]]
        everything = [*names, *(each["name"] for each in spec.get("initContainers") or ())]
        wanted = query.get("container", "")
        if wanted:
            if wanted not in everything:
                raise api_errors.bad_request(f"container {wanted} is not valid for pod {name}")
            return Target(pod, wanted)
        default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container", "")
        if default in names:
            return Target(pod, default)
        if len(names) > 1:
            raise api_errors.bad_request(
                f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
            )
        return Target(pod, names[0])

    async def _log(self, request: web.BaseRequest, route: Route) -> web.StreamResponse:
        query = request.query
        target = self.target(query, self.pod(route))
        since, limit = _since(request), number(query, "limitBytes")
        previous = flag(query, "previous")
        waiting = target.state.get("state", {}).get("waiting") if target.state else {"reason": "ContainerCreating"}
        if waiting is not None and not previous and not target.state.get("restartCount"):
            raise api_errors.bad_request(
                f'container "{target.container}" in pod "{route.name}" is waiting to start:'
                f" {waiting.get('reason') or 'ContainerCreating'}"
            )
        try:
            pieces = self._runtime.logs(
                target.uid,
                target.container,
                follow=flag(query, "follow"),
                tail=number(query, "tailLines"),
                previous=previous,
                since=since,
                timestamps=flag(query, "timestamps"),
            )
        except LookupError as error:
            raise _no_log(target, error) from error
        async with contextlib.aclosing(cast("AsyncGenerator[bytes, None]", pieces)) as stream:
            # The first piece comes before the response begins: after that an error could not be one any more.
            first = await _begin(stream, target, wait=not flag(query, "follow"))
            response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
            response.enable_chunked_encoding()
            await response.prepare(request)
            await _copy(response, stream, first, limit)
        return response

    async def _evict(self, request: web.BaseRequest, route: Route) -> web.Response:
        pod = self.pod(route)
        body = await bodies.read_object(request, optional=True)
        options = body.get("deleteOptions") or {}
        if not isinstance(options, dict):
            raise api_errors.bad_request("deleteOptions must be an object")
        grace = options.get("gracePeriodSeconds")
        self._store.delete(
            PODS,
            route.namespace,
            route.name,
            grace=grace if isinstance(grace, int) else None,
            uid=pod["metadata"]["uid"],
        )
        return bodies.answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, status=201)


async def _begin(stream: AsyncGenerator[bytes, None], target: Target, *, wait: bool) -> asyncio.Task[bytes]:
    """Get the first piece before the response starts, so that an error can still become an error response."""
    first = asyncio.ensure_future(_next(stream))
    try:
        await asyncio.wait({first}, timeout=None if wait else _REFUSAL_SECONDS)
    except asyncio.CancelledError:
        first.cancel()
        raise
    if first.done() and isinstance(error := first.exception(), LookupError | OSError):
        raise _no_log(target, error)
    return first


def _no_log(target: Target, error: Exception) -> api_errors.StatusError:
    """400, with the runtime's message, which is worded as a real kubelet's."""
    if isinstance(error, LookupError) and error.args and isinstance(error.args[0], str):
        return api_errors.bad_request(error.args[0])
    name = target.pod["metadata"]["name"]
    return api_errors.bad_request(f'logs of container "{target.container}" in pod "{name}" not found: {error}')


async def _next(stream: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(stream, b"")


async def _copy(
    response: web.StreamResponse, stream: AsyncGenerator[bytes, None], first: asyncio.Task[bytes], limit: int | None
) -> None:
    left = float("inf") if limit is None else limit
    try:
        piece = await first
        while piece and left > 0:
            piece = piece if len(piece) <= left else piece[: int(left)]
            left -= len(piece)
            await response.write(piece)
            piece = await _next(stream) if left > 0 else b""
    except (LookupError, OSError):
        return
    finally:
        first.cancel()


def _since(request: web.BaseRequest) -> float | None:
    seconds, stamp = number(request.query, "sinceSeconds"), request.query.get("sinceTime", "")
    if seconds is not None:
        return time.time() - seconds
    moment = seconds_of(stamp)
    if stamp and moment is None:
        raise api_errors.bad_request(f'sinceTime: Invalid value: "{stamp}"')
    return moment
