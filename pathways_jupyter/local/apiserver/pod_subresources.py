"""Subresources of pods: log, exec, port-forward, eviction."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator
from typing import cast

from aiohttp import web

from pathways_jupyter.local.apiserver import api_errors, bodies
from pathways_jupyter.local.apiserver.port_forward import SPDY_PROTOCOL, forward_over_channels, forward_over_spdy
from pathways_jupyter.local.apiserver.printing import seconds_of
from pathways_jupyter.local.apiserver.remotecommand import exec_over_websocket
from pathways_jupyter.local.apiserver.resources import PODS, Object
from pathways_jupyter.local.apiserver.route import ObjectRequest, flag, number
from pathways_jupyter.local.apiserver.runtime import PodRuntime
from pathways_jupyter.local.apiserver.store import Store

_REFUSAL_SECONDS = 0.05
"""Longest wait for the error of a followed log, since a log that is still empty yields nothing at all."""


async def serve_pod_subresource(
    request: web.BaseRequest, store: Store, runtime: PodRuntime, route: ObjectRequest, *, idle_seconds: float
) -> web.StreamResponse:
    """Answer one request for a pod's log, its eviction, or a connection into it.

    Args:
      idle_seconds: How long a connection may be without a message.

    Raises:
      StatusError: It cannot be done.
    """
    if route.subresource == "eviction":
        return await _evict(request, store, route)
    if route.subresource != "log" and request.headers.get("Upgrade", "").lower() != "websocket":
        raise api_errors.bad_request("unable to upgrade: this path needs a WebSocket")
    pod = store.record(PODS, route.namespace, route.name).object
    if route.subresource == "portforward":
        spdy = SPDY_PROTOCOL in request.headers.get("Sec-WebSocket-Protocol", "")
        forward = forward_over_spdy if spdy else forward_over_channels
        return await forward(request, runtime, pod, idle_seconds=idle_seconds)
    container = _container(request.query.get("container", ""), pod)
    if route.subresource == "log":
        return await _log(request, runtime, pod, container)
    return await exec_over_websocket(request, runtime, pod["metadata"]["uid"], container, idle_seconds=idle_seconds)


def _container(container: str, pod: Object) -> str:
    """Return the container of a request: the named one, or the only one; kubectl finds an annotated default itself."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [each["name"] for each in spec["containers"]]
    if container:
        if container not in [*names, *(each["name"] for each in spec.get("initContainers") or ())]:
            raise api_errors.bad_request(f"container {container} is not valid for pod {name}")
        return container
    if len(names) > 1:
        raise api_errors.bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        )
    return str(names[0])


async def _log(request: web.BaseRequest, runtime: PodRuntime, pod: Object, container: str) -> web.StreamResponse:
    query, name = request.query, pod["metadata"]["name"]
    follow, previous, limit = flag(query, "follow"), flag(query, "previous"), number(query, "limitBytes")
    since, stamp = number(query, "sinceSeconds"), query.get("sinceTime", "")
    begin = seconds_of(stamp) if since is None else time.time() - since
    if begin is None and stamp:
        raise api_errors.bad_request(f'sinceTime: Invalid value: "{stamp}"')
    statuses = pod.get("status") or {}
    found = [*(statuses.get("containerStatuses") or ()), *(statuses.get("initContainerStatuses") or ())]
    status: Object = next((each for each in found if each.get("name") == container), {"state": {"waiting": {}}})
    waiting = (status.get("state") or {}).get("waiting")
    if waiting is not None and not previous and not status.get("restartCount"):
        raise api_errors.bad_request(
            f'container "{container}" in pod "{name}" is waiting to start:'
            f" {waiting.get('reason') or 'ContainerCreating'}"
        )
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    response.enable_chunked_encoding()
    try:
        pieces = runtime.logs(
            pod["metadata"]["uid"],
            container,
            follow=follow,
            tail=number(query, "tailLines"),
            previous=previous,
            since=begin,
            timestamps=flag(query, "timestamps"),
        )
        async with contextlib.aclosing(cast("AsyncGenerator[bytes, None]", pieces)) as stream:
            # The first piece comes before the response begins: after that an error could not be one any more.
            first = asyncio.ensure_future(anext(stream, b""))
            try:
                await asyncio.wait({first}, timeout=_REFUSAL_SECONDS if follow else None)
                if first.done():
                    first.result()
                await response.prepare(request)
                piece, left = await first, math.inf if limit is None else limit
                while piece and left > 0:
                    await response.write(piece if len(piece) <= left else piece[: int(left)])
                    left -= len(piece)
                    piece = await anext(stream, b"") if left > 0 else b""
            finally:
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
    except (LookupError, OSError) as error:
        if not response.prepared:
            # A LookupError's message is worded as a real kubelet's.
            worded = isinstance(error, LookupError) and error.args and isinstance(error.args[0], str)
            why = error.args[0] if worded else f'logs of container "{container}" in pod "{name}" not found: {error}'
            raise api_errors.bad_request(why) from error
    return response


async def _evict(request: web.BaseRequest, store: Store, route: ObjectRequest) -> web.Response:
    body = await bodies.read_object(request, optional=True)
    options = body.get("deleteOptions") or {}
    if not isinstance(options, dict):
        raise api_errors.bad_request("deleteOptions must be an object")
    grace = options.get("gracePeriodSeconds")
    store.delete(PODS, route.namespace, route.name, grace=grace if isinstance(grace, int) else None)
    return bodies.answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, status=201)
