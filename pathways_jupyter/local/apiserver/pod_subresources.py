"""Subresources of pods: logs, exec, attach, port-forward, eviction, binding."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web
from multidict import CIMultiDict, MultiDict

from pathways_jupyter.local.apiserver import api_errors, bodies
from pathways_jupyter.local.apiserver.columns import seconds_of
from pathways_jupyter.local.apiserver.door import Head, UpgradedConnection, accept_upgrade
from pathways_jupyter.local.apiserver.remotecommand import attach_over_websocket, exec_over_websocket, read_command
from pathways_jupyter.local.apiserver.resources import PODS, Object
from pathways_jupyter.local.apiserver.route import Route, flag, number
from pathways_jupyter.local.apiserver.runtime import PodRuntime
from pathways_jupyter.local.apiserver.spdyexec import PROTOCOL as EXEC_PROTOCOL
from pathways_jupyter.local.apiserver.spdyexec import exec_over_spdy
from pathways_jupyter.local.apiserver.spdyforward import PROTOCOL as FORWARD_PROTOCOL
from pathways_jupyter.local.apiserver.spdyforward import TUNNEL_PROTOCOL, forward_over_spdy, forward_over_websocket
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.tunnel import open_tunnel
from pathways_jupyter.local.connection_bounds import STREAM_IDLE_SECONDS, IdleTimer

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
        if route.subresource == "binding":
            return await self._bind(request, route)
        pod = self.pod(route)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise api_errors.bad_request("unable to upgrade: this path needs a WebSocket or SPDY connection")
        if route.subresource == "portforward":
            if TUNNEL_PROTOCOL in request.headers.get("Sec-WebSocket-Protocol", ""):
                return await forward_over_websocket(request, self._runtime, pod, idle_seconds=self._idle_seconds)
            return await self._take_over(request, pod)
        target = self.target(request.query, pod)
        serve = attach_over_websocket if route.subresource == "attach" else exec_over_websocket
        return await serve(request, self._runtime, target.uid, target.container, idle_seconds=self._idle_seconds)

    async def _take_over(self, request: web.BaseRequest, pod: Object) -> web.StreamResponse:
        """Turn a connection that has served other requests, and so belongs to the HTTP server, into a tunnel."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        head = Head(request.method, request.path, MultiDict(request.query), CIMultiDict(request.headers))
        tunnel = open_tunnel(
            head, transport, b"", self._runtime, pod, idle_seconds=self._idle_seconds, before=request.protocol
        )
        transport.pause_reading()
        await tunnel.run()
        # The HTTP server wants a response, although the connection is closed by now.
        return web.Response()

    @staticmethod
    def takes_over(head: Head) -> bool:
        """Whether a request's connection is served here from its first byte on: SPDY, and tunnels for ports."""
        if head.upgrade.startswith("spdy/"):
            return True
        tunnel = TUNNEL_PROTOCOL not in head.headers.get("Sec-WebSocket-Protocol", "")
        return head.upgrade == "websocket" and head.path.endswith("/portforward") and tunnel

    async def serve_upgrade(self, head: Head, route: Route, transport: asyncio.Transport, rest: bytes) -> None:
        """Serve a request on its own connection, whose reading is paused.

        Args:
          rest: What came after the request's head.

        Raises:
          StatusError: It cannot be done; nothing was sent yet.
        """
        pod = self.pod(route)
        if head.upgrade == "websocket":
            await open_tunnel(head, transport, rest, self._runtime, pod, idle_seconds=self._idle_seconds).run()
        else:
            await self._serve_spdy(head, route, pod, transport, rest)

    async def _serve_spdy(
        self, head: Head, route: Route, pod: Object, transport: asyncio.Transport, rest: bytes
    ) -> None:
        offered = [
            name.strip() for each in head.headers.getall("X-Stream-Protocol-Version", []) for name in each.split(",")
        ]
        protocol = {"portforward": FORWARD_PROTOCOL, "exec": EXEC_PROTOCOL}.get(route.subresource, "")
        if protocol not in offered:
            raise api_errors.forbidden(
                f"unable to upgrade: {route.subresource} speaks {protocol or 'no SPDY'}, not {offered}"
            )
        idle = IdleTimer(transport, self._idle_seconds)
        try:
            if protocol == FORWARD_PROTOCOL:
                transport.write(accept_upgrade(protocol))
                await forward_over_spdy(UpgradedConnection(transport, rest, idle), self._runtime, pod)
                return
            target, command = self.target(head.query, pod), read_command(head.query)
            transport.write(accept_upgrade(protocol))
            connection = UpgradedConnection(transport, rest, idle)
            await exec_over_spdy(connection, self._runtime, target.uid, target.container, command)
        finally:
            idle.stop()

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

    async def _bind(self, request: web.BaseRequest, route: Route) -> web.Response:
        target = (await bodies.read_object(request)).get("target")
        node = target.get("name") if isinstance(target, dict) else None
        if not isinstance(node, str) or not node:
            raise api_errors.bad_request("a binding must name its target node")
        if self.pod(route)["spec"].get("nodeName"):
            raise api_errors.conflict(PODS, route.name, "the pod is already assigned to a node")
        self._store.edit(
            PODS, route.namespace, route.name, lambda pod: pod["spec"].update(nodeName=node), subresource="binding"
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
