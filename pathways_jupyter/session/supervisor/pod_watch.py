"""Watch a proxy's pod: when it is ready, why it cannot start, and when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pathways_jupyter.base import tasks, text
from pathways_jupyter.base.errors import ClusterError, PathwaysError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS, Object
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service import names
from pathways_jupyter.service.podstate import FATAL_REASONS, no_node
from pathways_jupyter.tunnel.relay import relay_container as relay

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0
RELAY_START_SECONDS = 20.0
"""Longest time that the relay may hold up the proxy: its image takes 2 to 4 s where the registry can be reached."""
_BEFORE_IMAGES = ("PodScheduled", "PodReadyToStartContainers")


class PodEnded(ServiceError):
    """A pod ended, or was deleted, before it was ready.

    Attributes:
      pod: Its name.
    """

    def __init__(self, pod: str, reason: str) -> None:
        super().__init__(f"The proxy did not start. {reason}", hint=advice("Try again; {doctor} looks for the cause."))
        self.pod = pod


class RelayRefused(ServiceError):
    """The proxy cannot have a relay, or not soon; without one it may start."""


class PodWatch:
    """Follows the first pod of a proxy Job, or the given head pod of a PathwaysJob.

    A replacement that the Job creates is ignored: the session's arrays were in the first pod.

    Attributes:
      ready: Future of the pod, set once it is ready; or the error that prevents that for good.
      lost: Future of the reason, set once the pod is gone, also if it was never ready.
      was_deleted: Whether the pod is gone because it was deleted, and has not ended by itself.
      error: Why the pod can no longer be watched; the pod itself may live.

    Args:
      progress: Called with what the pod does while it starts.
    """

    def __init__(self, progress: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Object] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()
        self.was_deleted = False
        self.error: ClusterError | None = None
        self._progress = progress
        self._reported = ""
        self._uid = self._name = self._container = ""
        self._has_relay = False
        # The uid of the Job whose pods are meant; empty for any.
        self._owner: asyncio.Future[str] = loop.create_future()
        # Runs while the relay holds up the pod, also by a policy that denies any pod with it.
        self._overdue: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def begin(
        self, client: Client, namespace: str, labels: str, *, pod: Object | None = None, container: str = ""
    ) -> None:
        """Begin to watch.

        Args:
          pod: The pod to follow; when left out the first one of the Job that :meth:`expect` names.
          container: The container of the pod that must run; needed where others keep the pod alive.
        """
        if pod is not None:
            self._uid, self._name = str(pod["metadata"]["uid"]), str(pod["metadata"]["name"])
            self._owner.set_result("")
        self._container = container
        self._tasks.append(asyncio.create_task(self._follow(client, namespace, labels)))

    def expect(self, job: Object, *, relay: bool) -> None:
        """Follow the pod of `job`, which was created after this watch began.

        Args:
          relay: There is a relay in the pod. The proxy starts behind it, so it must start soon; and once the pod was
            ready, go on trying when it cannot be watched, for example with expired credentials.
        """
        self._has_relay = relay
        self._owner.set_result(str(job["metadata"]["uid"]))
        # While a queue suspends it, there need not be a pod soon.
        self._relay_holds_up(not job["spec"].get("suspend"))

    @property
    def last_seen(self) -> str:
        """State of the pod when last seen, in a few words."""
        return self._reported or "there is no pod yet"

    async def close(self) -> None:
        """Stop watching."""
        self._relay_holds_up(False)
        await tasks.stop(*self._tasks)
        for future in (self.ready, self.lost):
            # Tasks that wait for them are being cancelled as well.
            future.cancel()

    async def _follow(self, client: Client, namespace: str, labels: str) -> None:
        async for _ in Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS):
            try:
                await self._watch(client, namespace, labels)
                return
            except ClusterError as error:
                if not self._has_relay or not self.ready.done():
                    self.error = error
                    self._fail(error)
                    if not self.lost.done():
                        self.lost.set_result(f"The proxy's pod can no longer be watched: {error} {error.hint}".rstrip())
                    return
                logger.warning("pod watch: %s", error)

    async def _watch(self, client: Client, namespace: str, labels: str) -> None:
        changes, there = watch(client, PODS, namespace=namespace, labels=labels), False
        async with contextlib.aclosing(changes):
            async for change in changes:
                if change.object:
                    owner = await self._owner
                    if owner and change.object["metadata"].get("labels", {}).get(names.JOB_UID_LABEL) != owner:
                        continue
                    self._uid = self._uid or change.object["metadata"]["uid"]
                    if change.object["metadata"]["uid"] != self._uid:
                        continue
                # A replacement has another uid; what was first seen is the proxy.
                if change.type is ChangeType.DELETED:
                    name = self._name = change.object["metadata"]["name"]
                    self._lose(name, f"Pod {name} was deleted.", deleted=True)
                elif change.type in {ChangeType.ADDED, ChangeType.MODIFIED}:
                    there, self._name = True, change.object["metadata"]["name"]
                    self._judge(change.object)
                elif change.type is ChangeType.SYNCED and self._uid and not there:
                    # This watch does not know what was seen before it began.
                    self._lose(self._name, f"Pod {self._name} was deleted.", deleted=True)
                elif change.error is not None:
                    logger.warning("pod watch: %s", change.error)

    def _judge(self, pod: Mapping[str, Any]) -> None:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        if status.get("phase") in {"Failed", "Succeeded"}:
            self._lose(name, f"Pod {name} ended: {_why_ended(status)}.")
        elif pod["metadata"].get("deletionTimestamp"):
            self._lose(name, f"Pod {name} is being deleted.", deleted=True)
        elif self._container and (ended := _terminated(status, self._container)):
            self._lose(
                name,
                f"Container {self._container} of pod {name} ended: {ended}.",
            )
        elif _condition(status, "Ready").get("status") == "True":
            self._reported = f"Pod {name} is ready."
            if not self.ready.done():
                self.ready.set_result(dict(pod))
        elif self.ready.done():
            # Not a loss yet: readiness may flap, and an unresponsive node looks the same at first.
            why = _condition(status, "Ready").get("reason") or "no reason"
            self._report(f"Pod {name} is not ready any more: {why}.")
        else:
            self._report_start(name, status)

    def _report_start(self, name: str, status: Mapping[str, Any]) -> None:
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = (container.get("state") or {}).get("waiting") or {}
            reason = waiting.get("reason", "")
            if reason not in FATAL_REASONS:
                continue
            why = f"{FATAL_REASONS[reason]} ({container.get('image', '?')}): {waiting.get('message') or reason}"
            if container.get("name") == relay.NAME:
                self._fail(RelayRefused(f"The relay cannot start: {why}"))
            else:
                hint = advice("Check {proxy_image}, or leave it out to use the image of the service's version.")
                self._fail(ServiceError(f"The proxy cannot start: {why}", hint=hint))
            return
        scheduled = _condition(status, "PodScheduled")
        if scheduled.get("status") == "False":
            why = no_node(scheduled) or scheduled.get("reason") or "no reason"
            self._report(f"Pod {name} waits for a node: {why}")
        else:
            self._report(f"Pod {name} is starting.")
        # A pod without a node or a network does not wait for its relay's image.
        has_node = "False" not in {_condition(status, each).get("status") for each in _BEFORE_IMAGES}
        started = status.get("initContainerStatuses") or ()
        runs = {each["name"] for each in started if "running" in (each.get("state") or {})}
        self._relay_holds_up(has_node and relay.NAME not in runs)

    def _relay_holds_up(self, holds_up: bool) -> None:
        """Fail unless this is called with False within some seconds after it was called with True."""
        if not self._has_relay:
            return
        if not holds_up and self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        elif holds_up and self._overdue is None:
            loop = asyncio.get_running_loop()
            self._overdue = loop.call_later(RELAY_START_SECONDS, self._relay_is_overdue)

    def _relay_is_overdue(self) -> None:
        seen = self.last_seen.rstrip(".")
        self._fail(RelayRefused(f"The relay did not start within {RELAY_START_SECONDS:g} s: {seen}."))

    def _report(self, words: str) -> None:
        if words != self._reported:
            self._reported = words
            self._progress(words)

    def _lose(self, name: str, reason: str, *, deleted: bool = False) -> None:
        self._reported = reason
        if not self.lost.done():
            self.was_deleted = deleted
        self._fail(PodEnded(name, reason))
        if not self.lost.done():
            self.lost.set_result(reason)

    def _fail(self, error: PathwaysError) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            # Mark the exception as retrieved: there may be no waiter, and asyncio would log that on garbage collection.
            self.ready.exception()


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found: list[Mapping[str, Any]] = [each for each in status.get("conditions") or () if each.get("type") == kind]
    return found[0] if found else {}


def _why_ended(status: Mapping[str, Any]) -> str:
    if status.get("reason"):
        return f"{status['reason']} {status.get('message', '')}".strip().rstrip(".")
    for container in status.get("containerStatuses") or ():
        if ended := _terminated(status, container["name"]):
            return ended
    return str(status.get("message") or status.get("phase"))


def _terminated(status: Mapping[str, Any], container: str) -> str:
    """Why a container ended; empty while it has not."""
    for each in status.get("containerStatuses") or ():
        ended = (each.get("state") or {}).get("terminated") or {}
        if ended and each["name"] == container:
            why, how = text.reason(ended.get("message") or ""), f"{ended.get('reason', 'ended')}, exit code"
            return f"{how} {ended.get('exitCode')}{f': {why}' if why else ''}"
    return ""
