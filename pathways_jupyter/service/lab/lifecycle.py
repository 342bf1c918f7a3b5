"""Start a lab, reach it from this machine, and end it.

Starting is idempotent: what is there is kept, so that a lab whose start was interrupted is completed by the next one.
Permissions are checked first, so that nothing is left half made for the lack of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError, ConnectionLost, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import (
    CLAIMS,
    JOBS,
    NETWORK_POLICIES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Object,
    Resource,
)
from pathways_jupyter.kube.watch import ChangeType, until_gone, watch
from pathways_jupyter.service import discovery, permissions
from pathways_jupyter.service.lab import manifests
from pathways_jupyter.service.lab.lab_stream import LabStream, current_pod
from pathways_jupyter.service.lab.manifests import LabSpec
from pathways_jupyter.service.podstate import FATAL_REASONS, State, explain, pod_state, waiting
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.multiplexer import StreamChannel
from pathways_jupyter.tunnel.portforward import Forward

START_SECONDS = 600.0
"""Longest wait for a lab's pod: a node may have to be made first, and a large image pulled."""
ANSWER_SECONDS = 120.0
"""Longest time from the start of JupyterLab's container to its first answer."""
END_SECONDS = 90.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 0.5

_MADE = (ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SECRETS)


async def up(client: Client, spec: LabSpec, *, progress: Callable[[str], None] = lambda words: None) -> str:
    """Start a lab, and return its token once its container runs; one that runs already stays as it is.

    Raises:
      ConfigError: It is not there yet, and `spec` has no image.
      ServiceError: It cannot start, and why; what was made for it stays, for the next attempt or for :func:`down`.
      ClusterError: A permission is missing, or the server could not be reached.
    """
    checked = await asyncio.gather(*(permissions.check(client, spec.namespace, need) for need in permissions.LAB_NEEDS))
    if missing := [each for each in checked if each.level is not Tone.OK]:
        raise ClusterError(" ".join(each.message for each in missing), hint=" ".join(each.hint for each in missing))
    existing = await objects.find(client, JOBS, spec.name, namespace=spec.namespace)
    if existing is not None and (
        objects.true_condition(existing, "Complete", "Failed") or existing["metadata"].get("deletionTimestamp")
    ):
        progress(f"Removing the lab {spec.name}, which has ended.")
        await _remove_job(client, spec.namespace, spec.name)
        existing = None
    if existing is None:
        progress(f"Creating {spec.name} in namespace {spec.namespace}.")
        for resource, manifest in await manifests_of(client, spec):
            if await objects.find(client, resource, spec.name, namespace=spec.namespace) is not None:
                continue
            try:
                await objects.create(client, resource, manifest)
            except ApiError as error:
                # 409: another `lab up` was faster.
                if error.status != 409:
                    raise
    await _until_running(client, spec, progress)
    secret = await objects.get(client, SECRETS, spec.name, namespace=spec.namespace)
    return manifests.token_of(secret)


async def is_running(client: Client, namespace: str, name: str) -> bool:
    """Return whether a lab has a pod that is ready."""
    pod = await current_pod(client, namespace, name)
    return pod is not None and pod_state(pod)[0] is State.READY


async def manifests_of(client: Client, spec: LabSpec) -> list[tuple[Resource, Object]]:
    """Return all objects of a lab in the order of their creation.

    Raises:
      ConfigError: `spec` has no image.
      ClusterError: The server could not be reached.
    """
    if not spec.image:
        raise ConfigError(
            "A lab needs an image with JupyterLab and pathways_jupyter.",
            hint="Give one with --image; docs/in-cluster.md shows how to build it.",
        )
    # An account can grant only what it may do itself. Without this one the lab's sessions take the tunnel.
    direct = await objects.allowed(client, "create", NETWORK_POLICIES, namespace=spec.namespace)
    return [
        (SERVICE_ACCOUNTS, manifests.service_account(spec)),
        (ROLES, manifests.role(spec, direct=direct)),
        (ROLE_BINDINGS, manifests.role_binding(spec)),
        (SECRETS, manifests.secret(spec, secrets.token_urlsafe(32))),
        (CLAIMS, manifests.claim(spec)),
        (JOBS, manifests.job(spec)),
    ]


@contextlib.asynccontextmanager
async def forwarded(
    client: Client, namespace: str, name: str, *, port: int = 0, reload: Callable[[ClusterError], Awaitable[None]]
) -> AsyncIterator[Forward]:
    """Listen on a loopback port that leads to a lab, inside the block, which begins once JupyterLab takes connections.

    All connections share one stream, which outlives a cut.

    Args:
      port: The local port; 0 for any free one.
      reload: Loads the cluster's address and credentials again; see :class:`~pathways_jupyter.tunnel.outage.Outage`.

    Raises:
      ServiceError: The server in the lab does not answer.
      ClusterError: The lab has no pod, the port is in use, a permission is missing, or the server could not be reached.
    """
    stream: LabStream | None = None
    opening = asyncio.Lock()

    async def open_channel() -> StreamChannel:
        nonlocal stream
        async with opening:
            # Another one when the cluster has replaced the pod, because its node was lost.
            if stream is None or not stream.channels.is_open:
                if stream is not None:
                    await stream.close()
                stream = await LabStream.open(client, namespace, name, reload=reload)
        return stream.channels.open({"port": manifests.PORT})

    forward = await portforward.listen(None, port=port, open_stream=open_channel)
    try:
        await _until_answering(open_channel, name, namespace)
        yield forward
    finally:
        await forward.close()
        if stream is not None:
            await stream.close()


async def _until_answering(open_channel: Callable[[], Awaitable[StreamChannel]], name: str, namespace: str) -> None:
    """Return when JupyterLab takes connections: it closes one that asks for nothing only after a while.

    Raises:
      ServiceError: It does not.
    """
    async for _ in (attempts := Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=ANSWER_SECONDS)):
        channel = await open_channel()
        try:
            # It answers before it has read all.
            await channel.send(b"GET /api HTTP/1.0\r\n\r\n")
            async with asyncio.timeout(ANSWER_SECONDS):
                await channel.answered.wait()
            if not channel.ended or channel.has_data:
                return
        except (ConnectionLost, TimeoutError):
            pass
        finally:
            channel.close()
        if attempts.is_over:
            raise ServiceError(
                f"JupyterLab in lab {name} does not listen after {ANSWER_SECONDS:.0f} s.",
                hint=f"See its log: kubectl logs job/{name} -n {namespace}.",
            )


async def until_ended(client: Client, namespace: str, name: str) -> None:
    """Return when a lab was removed, or shut down in JupyterLab.

    Raises:
      ApiError: Watching Jobs is forbidden.
    """
    there = False
    changes = watch(client, JOBS, namespace=namespace, name=name)
    async with contextlib.aclosing(changes):
        async for change in changes:
            there = there or change.type is ChangeType.ADDED
            is_gone = change.type is ChangeType.DELETED or (change.type is ChangeType.SYNCED and not there)
            if is_gone or objects.true_condition(change.object, "Complete", "Failed"):
                return


async def down(client: Client, namespace: str, name: str, *, delete_volume: bool) -> list[str]:
    """End a lab, and return what was removed, in a few words each, once its pod is gone.

    The proxies of its notebooks go with the pod, which owns them.

    Raises:
      ClusterError: Something could not be deleted; the rest may be gone.
      ServiceError: There is no such namespace.
    """
    ended = await _remove_job(client, namespace, name)
    # Only now: a pod that still ends uses its volume and its account, e.g. to remove its sessions' proxies.
    doomed = (*_MADE, *((CLAIMS,) if delete_volume else ()))
    gone = await asyncio.gather(*(objects.delete(client, each, name, namespace=namespace) for each in doomed))
    titles = ["its home volume" if each is CLAIMS else f"its {each.kind}" for each in doomed]
    removed = [*(["the server"] if ended else []), *(title for title, was in zip(titles, gone, strict=True) if was)]
    if not removed:
        await discovery.require_namespace(client, namespace)
    return removed


async def _until_running(client: Client, spec: LabSpec, progress: Callable[[str], None]) -> None:
    """Return once the pod is ready.

    Raises:
      ServiceError: It cannot start, or takes too long.
    """
    reported = ""
    changes = watch(client, PODS, namespace=spec.namespace, labels=f"{manifests.LAB_LABEL}={spec.name}")
    try:
        async with asyncio.timeout(START_SECONDS), contextlib.aclosing(changes):
            async for change in changes:
                if change.type not in {ChangeType.ADDED, ChangeType.MODIFIED}:
                    continue
                state, reason = pod_state(change.object)
                if state is State.READY:
                    return
                pod = change.object["metadata"]["name"]
                if reason in FATAL_REASONS:
                    # It would be tried again for ever; only a person can change the image.
                    said = waiting(change.object)[1] or reason
                    raise ServiceError(
                        f"The lab cannot start: {FATAL_REASONS[reason]} ({spec.image}): {said}",
                        hint=advice(
                            "Fix it, e.g. with another --image, and end this one: {lab_down}. "
                            "Its log: kubectl logs {pod} -n {namespace}.",
                            pod=pod,
                            namespace=spec.namespace,
                        ),
                    )
                words = f"Pod {pod}: {explain(change.object, reason)}."
                if words != reported:
                    reported = words
                    progress(words)
    except TimeoutError as error:
        raise ServiceError(
            f"The lab did not start within {START_SECONDS:.0f} s. {reported or 'It has no pod.'}",
            hint=f"See its events: kubectl describe pods -l {manifests.LAB_LABEL}={spec.name} -n {spec.namespace}.",
        ) from error


async def _remove_job(client: Client, namespace: str, name: str) -> bool:
    """Delete the Job; return whether there was one, once its pods are gone."""
    existed = await objects.delete(client, JOBS, name, namespace=namespace)
    try:
        async with asyncio.timeout(END_SECONDS):
            await until_gone(client, PODS, namespace=namespace, labels=f"{manifests.LAB_LABEL}={name}")
    except TimeoutError:
        raise ServiceError(
            f"The pod of lab {name} still ends after {END_SECONDS:.0f} s.", hint=advice("Run {lab_down} again.")
        ) from None
    return existed
