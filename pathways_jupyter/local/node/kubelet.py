"""Kubelet of every node: runs pods as processes of this machine and reports their status to the API.

One kubelet serves all nodes, since they are all this machine. It watches the store's pods: it starts a pod that the
scheduler has bound to a node, ends one that is marked for deletion, and reports or removes one that has ended.

A pod with the annotation ``pathways-jupyter/hollow: "true"`` is reported as running and ready without any process. That
is for tests of scale only: thousands of such pods show what a client makes of a large cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.local.apiserver.object_lifecycle import pod_is_over
from pathways_jupyter.local.apiserver.resources import PODS, Object
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.strategy import now
from pathways_jupyter.local.apiserver.watch_delivery import Watch, WatchEvent, WatchEventType
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.node import environment, programs, volumes
from pathways_jupyter.local.node.container import Container
from pathways_jupyter.local.node.exec import Exec
from pathways_jupyter.local.node.network import Network
from pathways_jupyter.local.node.pod import Pod
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.pathways import links
from pathways_jupyter.local.settings import CONTAINER_RESTARTS, HOLLOW_ANNOTATION, RetryDelay
from pathways_jupyter.service import names

_log = logging.getLogger(__name__)

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INHERITED = (
    "COVERAGE_PROCESS_START",
    "DYLD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "SSL_CERT_FILE",
    "TZ",
)


class Kubelet:
    """The pods that run here, and the API server's ``PodRuntime``.

    Args:
      directory: The cluster's directory; pods live below ``pods/``.
      cold: Starts commands and light programs.
      warm: Starts programs that need JAX.
      restarts: Wait before a container that ended is restarted.
      account: Returns the variables by which a pod reaches the API.
      forget: Called with the uid of a pod whose object is gone.
    """

    def __init__(
        self,
        directory: Path,
        *,
        network: Network,
        cold: Spawner,
        warm: Spawner,
        restarts: RetryDelay = CONTAINER_RESTARTS,
        account: Callable[[Object], Mapping[str, str]] = lambda _pod: {},
        forget: Callable[[str], None] = lambda _uid: None,
    ) -> None:
        self.directory = directory
        self.programs = directory / "bin"
        self.network = network
        self.restarts = restarts
        self.spawners: Mapping[bool, Spawner] = {True: warm, False: cold}
        self._account = account
        self._on_forget = forget
        self._nodes: dict[str, str] = {}
        self._pods: dict[str, Pod] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._store: Store
        self._recorder: Recorder
        self._watch: Watch | None = None
        self._following: asyncio.Task[None] | None = None
        environment.install_kill(self.programs)

    def attach(self, store: Store, recorder: Recorder) -> None:
        """Watch the pods of `store`, once."""
        self._store = store
        self._recorder = recorder
        self._watch = store.watch(PODS)
        self._following = asyncio.create_task(self._follow(self._watch))

    async def close(self) -> None:
        """End every pod at once and remove what they left."""
        # Without a watch, so that nothing is started while all pods end.
        if self._watch is not None:
            self._watch.close()
        for pod in self._pods.values():
            pod.terminate(0)
        if self._running:
            await asyncio.wait(self._running.values())
        # Only now: a process that still runs may write into its directory.
        for pod in self._pods.values():
            pod.remove()
        self._pods.clear()

    # Called by the API server.

    def logs(
        self,
        uid: str,
        container: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        since: float | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """See :meth:`pathways_jupyter.local.apiserver.pod_subresources.PodRuntime.logs`."""
        one = self._container(uid, container)
        log = one.previous if previous else one.log
        if log is None and previous:
            raise LookupError(f'previous terminated container "{one.name}" in pod "{self._pods[uid].name}" not found')
        if log is None:
            reason = one.state.get("waiting", {}).get("reason", "ContainerCreating")
            raise LookupError(f'container "{one.name}" in pod "{self._pods[uid].name}" is waiting to start: {reason}')
        return log.read(follow=follow, tail=tail, since=since, timestamps=timestamps)

    async def exec(self, uid: str, container: str, command: list[str], *, stdin: bool, tty: bool) -> Exec:
        """See :meth:`pathways_jupyter.local.apiserver.pod_subresources.PodRuntime.exec`."""
        return await self._container(uid, container).exec(command, stdin=stdin, tty=tty)

    async def dial(self, uid: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See :meth:`pathways_jupyter.local.apiserver.pod_subresources.PodRuntime.dial`."""
        pod = self._pods.get(uid)
        # One that has ended keeps its address and its sockets until its object is gone.
        if pod is None or pod.ended.is_set():
            raise LookupError("the pod is not running")
        return await pod.dial(port)

    # Called by pods.

    def node_address(self, node: str) -> str:
        """Return the address of a node, which pods in its network share."""
        if node not in self._nodes:
            self._nodes[node] = self.network.assign()
        return self._nodes[node]

    def environment(self, pod: Pod, container: Object) -> dict[str, str]:
        """All variables of a container of `pod`, few of them inherited from the daemon.

        Raises:
          SpecError: Its spec names something that does not exist.
        """
        spec = pod.object["spec"]
        base = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        base |= {
            "PATH": f"{pod.python / 'bin'}:{self.programs}:{os.path.dirname(sys.executable)}:{_SYSTEM_PATH}",
            "HOME": str(pod.directory / "root"),
            "TMPDIR": str(pod.directory / "tmp"),
            "HOSTNAME": spec.get("hostname") or pod.name,
            "POD_IP": pod.address,
            links.NAMES_VARIABLE: str(self.network.names(pod.object["metadata"]["namespace"])),
            links.SOCKETS_VARIABLE: str(self.network.sockets(pod.uid)),
            **programs.python_variables(pod.python),
            **self._account(pod.object),
        }
        # In this order: variables may refer to the status, the target of JAX may be one of them, and a volume moves
        # whatever path is their final value.
        present = {**pod.object, "status": pod.status}
        variables = environment.container_environment(container, present, base=base, store=self._store)
        environment.point_jax(variables, partial(self.network.socket, pod.object["metadata"]["namespace"]))
        return volumes.mount(container, present, variables, directory=self.directory, store=self._store)

    def publish(self, pod: Pod) -> None:
        """Write the pod's status to the API."""
        self._write_status(pod.object, pod.status)

    def record(self, pod: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event about `pod`."""
        self._recorder.record(pod, "kubelet", reason, message, warning=warning)

    # Watching the store.

    async def _follow(self, watch: Watch) -> None:
        while changes := await watch.batch():
            for change in changes:
                # One pod that cannot be handled must not stop all the others.
                try:
                    self._handle(change)
                except Exception:
                    _log.exception("Handling a change of pod %s failed.", change.object["metadata"]["name"])

    def _handle(self, change: WatchEvent) -> None:
        obj = change.object
        metadata, uid = obj["metadata"], obj["metadata"]["uid"]
        if change.type is WatchEventType.DELETED:
            self._forget(uid)
            return
        if not obj["spec"].get("nodeName"):
            return
        ending = "deletionTimestamp" in metadata
        if (metadata.get("annotations") or {}).get(HOLLOW_ANNOTATION) == "true":
            self._report_hollow(obj, ending)
        elif (pod := self._pods.get(uid)) is not None:
            pod.object = obj
            if ending:
                # Where its processes have ended already, no end of theirs will delete the object.
                if pod.ended.is_set():
                    self._delete(obj)
                pod.terminate(metadata.get("deletionGracePeriodSeconds", 0))
        elif ending:
            # Deleted before it was seen here with its node: there is nothing to end.
            self._end_unstarted(obj)
        elif not pod_is_over(obj):
            pod = self._pods[uid] = Pod(obj, self)
            # For clients in other pods: the annotation says where this one's ports are.
            sockets = str(self.network.sockets(uid))
            with contextlib.suppress(ApiError):
                self._store.edit(
                    PODS,
                    metadata["namespace"],
                    metadata["name"],
                    lambda copy: (
                        copy["metadata"].setdefault("annotations", {}).update({names.SOCKETS_ANNOTATION: sockets})
                    ),
                )
            self._running[uid] = asyncio.create_task(self._run(pod))

    async def _run(self, pod: Pod) -> None:
        try:
            await pod.run()
        except Exception:
            _log.exception("Pod %s failed.", pod.name)
            pod.ended.set()
        self._running.pop(pod.uid, None)
        # Its object was removed while it ran (see _forget), so there is no status left to write.
        if self._pods.get(pod.uid) is not pod:
            pod.remove()
            return
        # The final status before the deletion: controllers read from it how the pod has ended.
        self.publish(pod)
        if "deletionTimestamp" in pod.object["metadata"]:
            self._delete(pod.object)

    def _forget(self, uid: str) -> None:
        """End a pod whose object is gone."""
        # First: its token must not outlive its object, however long its processes take to end.
        self._on_forget(uid)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        # What it leaves is removed when its processes have ended: by _run, where they still run.
        if uid in self._running:
            pod.terminate(0)
        else:
            pod.remove()

    def _end_unstarted(self, obj: Object) -> None:
        if not pod_is_over(obj):
            self._write_status(obj, {**obj.get("status", {}), "phase": "Failed"})
        self._delete(obj)

    def _delete(self, obj: Object) -> None:
        metadata = obj["metadata"]
        # It may be gone. By uid, because the name may belong to a newer pod.
        with contextlib.suppress(ApiError):
            self._store.delete(PODS, metadata["namespace"], metadata["name"], grace=0, uid=metadata["uid"])

    def _write_status(self, obj: Object, status: Object) -> None:
        metadata = obj["metadata"]
        with contextlib.suppress(ApiError):
            current = self._store.record(PODS, metadata["namespace"], metadata["name"]).object
            # The name may belong to a newer pod by now.
            if current["metadata"]["uid"] != metadata["uid"]:
                return
            before = current.get("status", {})
            # Other writers have conditions of their own: the node controller's DisruptionTarget, or a client's.
            own = {each["type"] for each in status.get("conditions", ())}
            others = [each for each in before.get("conditions", ()) if each["type"] not in own]
            status = {**before, **status, "conditions": [*status.get("conditions", ()), *others]}
            self._store.update(PODS, {**current, "status": status}, subresource="status")

    def _container(self, uid: str, name: str) -> Container:
        pod = self._pods.get(uid)
        if pod is None:
            raise LookupError("the pod does not run on this machine")
        return pod.container(name)

    def _report_hollow(self, obj: Object, ending: bool) -> None:
        """Report a hollow pod as running and ready, or remove it."""
        if ending:
            self._end_unstarted(obj)
            return
        if obj.get("status", {}).get("phase") != "Pending":
            return
        time = now()
        running = [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": time}},
                "lastState": {},
            }
            for each in obj["spec"]["containers"]
        ]
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": time}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ]
        address = self.node_address(obj["spec"]["nodeName"])
        self._write_status(
            obj,
            {
                "phase": "Running",
                "startTime": time,
                "hostIP": address,
                "podIP": address,
                "podIPs": [{"ip": address}],
                "conditions": conditions,
                "containerStatuses": running,
            },
        )
