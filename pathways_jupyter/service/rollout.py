"""Follow the start of a service: the head, then the slices one by one, and why something is not there yet.

Pods and events are watched. A worker's pod is ready as soon as its program runs, so at the end the resource manager's
own log says when all slices have registered.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from pathways_jupyter.base.errors import ClusterError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import count
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import EVENTS, JOBSETS, PODS, Object, Resource
from pathways_jupyter.kube.pods import logs
from pathways_jupyter.kube.watch import Change, ChangeType, watch
from pathways_jupyter.kube.watch_group import WatchGroup, if_allowed
from pathways_jupyter.service import discovery, names, queues
from pathways_jupyter.service.derivation import Derived, derive
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.model import Service, SliceHost
from pathways_jupyter.service.namespacestate import PodIndex
from pathways_jupyter.service.pathwaysjob.description import event_info
from pathways_jupyter.service.podstate import FATAL_REASONS, State, explain, pod_state

TIMEOUT_SECONDS = 1800.0
"""Longest time that a start is followed; GKE may need a quarter of an hour to create the nodes of a slice."""

_REGISTERED = re.compile(r"\*\*\* (?P<ready>\d+)/(?P<all>\d+) Pathways Slices Now Ready")
_LOG_SECONDS = 60.0
"""Longest time until a service whose pods are all ready says so in its log."""
# Events of type Normal that explain a wait.
_EXPLAINING = {"Pulling", "TriggeredScaleUp", "NotTriggerScaleUp"}


@dataclass(frozen=True)
class RolloutStep:
    """One step of a start.

    Attributes:
      tone: OK for a part that is up, WAIT for one that is not yet, WARN for a warning of the cluster.
      ready: Slices whose pods are ready.
      slices: Slices in all.
    """

    tone: Tone
    message: str
    ready: int = 0
    slices: int = 0


async def follow(
    client: Client, namespace: str, name: str, *, seconds: float = TIMEOUT_SECONDS
) -> AsyncGenerator[RolloutStep, None]:
    """Yield the steps of service `name` until it is ready.

    Args:
      seconds: How long to follow it; the service stays after that.

    Raises:
      ServiceError: There is no such service, it has ended for good, or it is not ready in time.
      ApiError: Watching it is forbidden.
      ClusterError: The server could not be reached.
    """
    service = await discovery.find(client, namespace, name)
    rollout, loop = _Rollout(service), asyncio.get_running_loop()
    deadline, waits = loop.time() + seconds, ""
    try:
        if service.queue:
            jobset = await objects.get(client, JOBSETS, service.name, namespace=service.namespace)
            async with contextlib.aclosing(queues.until_admitted(client, jobset, seconds=seconds)) as queued:
                async for waits in queued:
                    yield RolloutStep(Tone.WAIT, waits, 0, service.slices)
            waits = ""
        async with WatchGroup(_watches(client, service)) as changes:
            while not rollout.ready:
                if not (news := await changes.batch(deadline - loop.time())):
                    raise TimeoutError
                for resource, change in news:
                    for step in rollout.take(resource, change.type, change.object):
                        yield step
    except TimeoutError:
        raise ServiceError(
            f"Service {service.name} is not ready after {seconds:g} s: {waits.rstrip('.') or rollout.missing()}.",
            hint=advice(
                "It stays, and may still start: {service_wait:{name}}. {service_delete:{name}} removes it.",
                name=service.name,
            ),
        ) from None
    yield await _registered(client, rollout)


class _Rollout:
    """The service's objects as far as they are known, and what was said about them."""

    def __init__(self, service: ServiceInfo) -> None:
        self.service = service
        self._pods: dict[str, Object] = {}
        self._synced = False
        self._said: dict[str, str] = {}
        self._warned: set[tuple[str, str, str]] = set()
        self._index = PodIndex()
        self._derived: Derived = {}
        self.model: Service = derive(service, pods=self._index, jobs=())

    @property
    def ready(self) -> bool:
        """Return whether the head's and all workers' pods are ready."""
        return self._synced and self.model.head is State.READY and self.model.ready == len(self.model.slices)

    @property
    def head(self) -> str:
        """Name of the head's pod."""
        heads = self._index.of_head(self.service.name)
        return heads[-1].name if heads else ""

    def take(self, resource: Resource, change: ChangeType, item: Object) -> list[RolloutStep]:
        """Apply a change; return what is new.

        Raises:
          ServiceError: The service has ended for good, or was deleted.
        """
        if resource == EVENTS:
            return self._event(item) if change in {ChangeType.ADDED, ChangeType.MODIFIED} else []
        if resource == JOBSETS:
            if change is ChangeType.DELETED:
                raise ServiceError(f"Service {self.service.name} was deleted.", hint="Deploy it again.")
            self.service = discovery.describe(item) or self.service if item else self.service
            if self.service.ended:
                raise discovery.has_ended(self.service)
        elif change is ChangeType.SYNCED:
            self._synced = True
        elif change is ChangeType.DELETED:
            self._pods.pop(item["metadata"]["name"], None)
            self._index.drop(item["metadata"]["name"])
        elif item:
            self._pods[item["metadata"]["name"]] = item
            self._index.put(item)
        self.model = derive(self.service, pods=self._index, jobs=(), cache=self._derived)
        return self._news() if self._synced else []

    def missing(self) -> str:
        """Return what is not up, in a few words."""
        if self.model.head is not State.READY:
            return f"its head is not up ({self.model.reason or 'no pod'})"
        waiting = [each for each in self.model.slices if each.state is not State.READY]
        if not waiting:
            return "its resource manager has not reported all slices"
        first = next((self._why(host) for host in waiting[0].hosts if host.state is not State.READY), "")
        are = "is" if len(waiting) == 1 else "are"
        late = f"{len(waiting)} of {count(len(self.model.slices), 'slice')} {are} not up"
        return f"{late}; slice {waiting[0].index}: {first}"

    def _news(self) -> list[RolloutStep]:
        pod, reason = self._pods.get(self.head), self.model.reason or "no pod yet"
        why_head = explain(pod, reason) if pod is not None else "no pod yet" if reason == "no pod" else reason
        steps = self._said_once("head", self.model.head is State.READY, "The head", why_head, reason)
        for each in self.model.slices:
            late = next((host for host in each.hosts if host.state is not State.READY), None)
            why = reason = ""
            if late is not None:
                which = f"host {late.index}, " if len(each.hosts) > 1 else ""
                why, reason = f"{which}{self._why(late)}", late.reason
            # Workers are created after the head is up, so until then their absence says nothing.
            if self.model.head is State.READY or late is None:
                steps += self._said_once(f"slice {each.index}", late is None, f"Slice {each.index}", why, reason)
        return steps

    def _said_once(self, part: str, up: bool, title: str, why: str, reason: str) -> list[RolloutStep]:
        """Return a step for a part, unless the same was said of it before; `reason` is `why` in Kubernetes' word."""
        words = "up" if up else why
        if self._said.get(part) == words:
            return []
        self._said[part] = words
        total = len(self.model.slices)
        if up:
            of = f" ({self.model.ready} of {total})" if part != "head" else ""
            return [RolloutStep(Tone.OK, f"{title} is up{of}.", self.model.ready, total)]
        tone = Tone.WARN if reason in FATAL_REASONS else Tone.WAIT
        return [RolloutStep(tone, f"{title}: {why}.", self.model.ready, total)]

    def _why(self, host: SliceHost) -> str:
        return explain(self._pods.get(host.pod), host.reason or str(host.state))

    def _event(self, event: Object) -> list[RolloutStep]:
        obj = event.get("involvedObject") or {}
        name, kind, reason = str(obj.get("name") or ""), str(obj.get("kind") or ""), str(event.get("reason") or "")
        message = " ".join(str(event.get("message") or "").split())
        if kind == "Pod":
            # Events of a former service of this name are about pods that do not exist any more.
            pod = self._pods.get(name)
            is_ours = pod is not None and pod_state(pod)[0] is not State.READY
        else:
            is_ours = kind in {"Job", "JobSet"} and f"{name}-".startswith(f"{self.service.name}-")
            # Its Jobs had these names too, and who deploys may not watch Jobs, so that their uids are not known.
            is_ours = is_ours and event_info(event).time >= self.service.created
        if not is_ours or (event.get("type") != "Warning" and reason not in _EXPLAINING):
            return []
        if (kind, reason, message) in self._warned:
            return []
        self._warned.add((kind, reason, message))
        tone = Tone.WARN if event.get("type") == "Warning" else Tone.WAIT
        text = f"{kind} {name}: {reason}: {message.rstrip('.')}."
        return [RolloutStep(tone, text, self.model.ready, len(self.model.slices))]


def _watches(client: Client, service: ServiceInfo) -> Mapping[Resource, AsyncGenerator[Change, None]]:
    """Return the watches of the service's JobSet and pods, and of the namespace's events, which may be forbidden."""
    namespace, labels = service.namespace, f"{names.JOBSET_NAME_LABEL}={service.name}"
    return {
        JOBSETS: watch(client, JOBSETS, namespace=namespace, name=service.name),
        PODS: watch(client, PODS, namespace=namespace, labels=labels),
        EVENTS: if_allowed(watch(client, EVENTS, namespace=namespace)),
    }


async def _registered(client: Client, rollout: _Rollout) -> RolloutStep:
    """Follow the resource manager's log until all slices have registered; return the last step."""
    service, total = rollout.service, len(rollout.model.slices)
    lines = logs(
        client,
        rollout.head,
        namespace=service.namespace,
        container=names.RESOURCE_MANAGER_CONTAINER,
        follow=True,
    )
    try:
        async with asyncio.timeout(_LOG_SECONDS), contextlib.aclosing(lines):
            async for line in lines:
                match = _REGISTERED.search(line)
                if match is not None and match["ready"] == match["all"]:
                    text = f"Service {service.name} is ready: {count(total, 'slice')} at {service.address}."
                    return RolloutStep(Tone.OK, text, total, total)
        why = "its log ended"
    except TimeoutError:
        why = f"its log did not say so within {_LOG_SECONDS:g} s"
    except ClusterError as error:
        why = f"its log cannot be read: {error}"
    text = f"All pods of {service.name} are ready. Whether the slices have registered is not known: {why}."
    return RolloutStep(Tone.WARN, text, total, total)
