"""One pod: its containers in order, its status, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.strategy import now
from pathways_jupyter.local.node import programs
from pathways_jupyter.local.node.container import Container, Role
from pathways_jupyter.local.node.network import Network
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.settings import RetryDelay

# Sidecars end after the others; they get at least this long of the grace period.
_SIDECAR_GRACE = 2.0
# Volumes for which the pod's own directory is a good enough substitute, and those that are mounted (see `volumes`).
_PRESENT = frozenset({"emptyDir", "hostPath", "persistentVolumeClaim"})


class PodHost(Protocol):
    """Interface of the kubelet for its pods."""

    directory: Path
    network: Network
    restarts: RetryDelay
    spawners: Mapping[bool, Spawner]
    """Fork servers: True for programs that need JAX."""

    def environment(self, pod: Pod, container: Object) -> dict[str, str]:
        """All variables of a container; see :func:`~pathways_jupyter.local.node.environment.container_environment`."""

    def publish(self, pod: Pod) -> None:
        """Write the pod's status to the API."""

    def record(self, pod: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event about `pod`."""

    def node_address(self, node: str) -> str:
        """Return the address of a node, which pods in its network share."""


class Pod:
    """A pod that runs here; :meth:`run` lasts as long as the pod."""

    def __init__(self, obj: Object, host: PodHost) -> None:
        self.object = obj
        self.uid: str = obj["metadata"]["uid"]
        self.directory = host.directory / "pods" / self.uid
        self.python = self.directory / "python"
        self.restarts = host.restarts
        self.spawners = host.spawners
        self._host = host
        spec = obj["spec"]
        self._policy: str = spec["restartPolicy"]
        self.containers = [
            *(
                Container(each, Role.SIDECAR if each.get("restartPolicy") == "Always" else Role.INIT, self)
                for each in spec.get("initContainers") or ()
            ),
            *(Container(each, Role.MAIN, self) for each in spec["containers"]),
        ]
        self._default_grace = float(spec.get("terminationGracePeriodSeconds", 30))
        self._shares_node = bool(spec.get("hostNetwork"))
        node = host.node_address(spec["nodeName"])
        self.address = node if self._shares_node else host.network.assign()
        self.host_address = node
        self._began = now()
        self._initialized = all(each.role is Role.MAIN for each in self.containers)
        self._failed = False
        self._reason: Object = {}
        self._stop = asyncio.Event()
        self._grace = 0.0
        self._killed = False
        self._publishing = False
        self._conditions: dict[str, Object] = {}
        self.ended = asyncio.Event()
        """Set when every container has ended for good."""

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.object["metadata"]["name"])

    async def run(self) -> None:
        """Run the pod until all its containers have ended for good, or :meth:`terminate` is called."""
        (self.directory / "root").mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.directory / "tmp").mkdir(mode=0o700, exist_ok=True)
        programs.make_python(self.python)
        metadata, spec = self.object["metadata"], self.object["spec"]
        if not self._shares_node or spec.get("subdomain"):
            # The name by which other pods of its namespace reach it.
            name = f"{spec.get('hostname') or self.name}.{spec['subdomain']}" if spec.get("subdomain") else self.name
            self._host.network.publish(self.uid, metadata["namespace"], name)
        # Before any process, which listens in this directory.
        self._host.network.sockets(self.uid)
        if absent := [each["name"] for each in spec.get("volumes") or () if not _PRESENT.intersection(each)]:
            message = f"An embedded cluster mounts claims only; the pod starts without {', '.join(absent)}"
            self.record("FailedMount", message, warning=True)
        self.changed()
        running: dict[Container, asyncio.Task[None]] = {}
        stopping = asyncio.create_task(self._stop.wait())

        def on_deadline() -> None:
            reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
            self._failed, self._reason = True, {"reason": reason, "message": message}
            self.record(reason, message, warning=True)
            self.terminate(self._default_grace)

        deadline = spec.get("activeDeadlineSeconds")
        timer = asyncio.get_running_loop().call_later(deadline, on_deadline) if deadline is not None else None
        try:
            if await self._initialize(running, stopping):
                mains = [each for each in self.containers if each.role is Role.MAIN]
                for container in mains:
                    running[container] = asyncio.create_task(container.run(self._policy))
                # Ends when all main containers have ended for good, or when termination was requested; _end then
                # stops what still runs. Waiting does not cancel the containers' tasks: they end by being stopped.
                await asyncio.wait(
                    [stopping, asyncio.ensure_future(asyncio.wait([running[each] for each in mains]))],
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            stopping.cancel()
            if timer is not None:
                timer.cancel()
            # Whatever went wrong above, no process of the pod outlives this call.
            await self._end(running)

    def terminate(self, grace: float) -> None:
        """End the pod: its containers get `grace` seconds; a later call with fewer kills them at once."""
        if self._stop.is_set() and grace >= self._grace:
            return
        self._grace = grace
        first = not self._stop.is_set()
        self._stop.set()
        if grace <= 0 or not first:
            self._killed = True
            for container in self.containers:
                container.kill()

    def remove(self) -> None:
        """Remove what the pod left behind; it must have ended."""
        for container in self.containers:
            for log in (container.log, container.previous):
                if log is not None:
                    # Its followers end; the files go with the directory.
                    log.close()
        self._host.network.forget(self.uid)
        if not self._shares_node:
            self._host.network.release(self.address)
        shutil.rmtree(self.directory, ignore_errors=True)

    def container(self, name: str) -> Container:
        """Return the container of that name, or the first one for an empty name.

        Raises:
          LookupError: There is none.
        """
        for container in self.containers:
            if container.name == name or (not name and container.role is Role.MAIN):
                return container
        raise LookupError(f"container {name} is not valid for pod {self.name}")

    # What containers need.

    def environment(self, spec: Object) -> dict[str, str]:
        """Return the variables of a container of this pod.

        Raises:
          SpecError: It names something that does not exist.
        """
        return self._host.environment(self, spec)

    async def dial(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of the pod.

        Raises:
          OSError: Nothing listens there.
        """
        return await self._host.network.dial(self.uid, self.address, port)

    def record(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event about the pod."""
        self._host.record(self.object, reason, message, warning=warning)

    def changed(self) -> None:
        """Schedule the status for publishing; changes until then are published together."""

        def publish() -> None:
            self._publishing = False
            self._host.publish(self)

        if not self._publishing:
            self._publishing = True
            asyncio.get_running_loop().call_soon(publish)

    # Status.

    @property
    def phase(self) -> str:
        """The pod's phase."""
        # A deadline or a failed init container fails the pod, whatever its containers have done.
        if self._failed:
            return "Failed"
        mains = [each for each in self.containers if each.role is Role.MAIN]
        if self.ended.is_set():
            return "Succeeded" if all(each.exit_code == 0 for each in mains) else "Failed"
        started = self._initialized and any(each.ever_started for each in mains)
        return "Running" if started else "Pending"

    @property
    def status(self) -> Object:
        """The pod's status as the API has it."""
        address = {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        status: Object = {
            "phase": self.phase,
            "startTime": self._began,
            "hostIP": self.host_address,
            "hostIPs": [{"ip": self.host_address}],
            **address,
            "conditions": self._current_conditions(),
            "containerStatuses": [each.status for each in self.containers if each.role is Role.MAIN],
        }
        if any(each.role is not Role.MAIN for each in self.containers):
            status["initContainerStatuses"] = [each.status for each in self.containers if each.role is not Role.MAIN]
        return status | self._reason

    def _current_conditions(self) -> list[Object]:
        long_lived = [each for each in self.containers if each.role is not Role.INIT]
        unready = [each.name for each in long_lived if not each.ready]
        # Not ready from the moment that it has to end, though its processes still serve: clients must stop choosing it.
        over = self.ended.is_set() or self._stop.is_set()
        incomplete = [
            each.name
            for each in self.containers
            if (each.role is Role.INIT and each.exit_code != 0)
            or (each.role is Role.SIDECAR and not each.started.is_set())
        ]
        missing = ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")
        reason = "PodCompleted" if self.phase == "Succeeded" else "ContainersNotReady"
        waiting = (reason, f"containers with unready status: [{' '.join(unready)}]")
        for kind, holds, why in (
            ("PodReadyToStartContainers", not self.ended.is_set(), None),
            ("Initialized", self._initialized, missing),
            ("Ready", not unready and not over, waiting),
            ("ContainersReady", not unready, waiting),
            ("PodScheduled", True, None),
        ):
            condition: Object = {"type": kind, "status": str(holds)}
            if not holds and why is not None:
                condition["reason"], condition["message"] = why
            before = self._conditions.get(kind)
            changed = before is None or before["status"] != condition["status"]
            time = now() if changed or before is None else before["lastTransitionTime"]
            self._conditions[kind] = {**condition, "lastTransitionTime": time}
        return list(self._conditions.values())

    # Life.

    async def _initialize(self, running: dict[Container, asyncio.Task[None]], stopping: asyncio.Task[bool]) -> bool:
        """Run the init containers in order; return whether the others may start."""
        for container in self.containers:
            if container.role is Role.MAIN:
                continue
            sidecar = container.role is Role.SIDECAR
            policy = "Always" if sidecar else "Never" if self._policy == "Never" else "OnFailure"
            # In `running` from the start, so that _end() stops it whatever happens while it is waited for.
            task = running[container] = asyncio.create_task(container.run(policy))
            # A sidecar runs beside the next containers, so only its start is awaited; an init container has to end.
            awaited = asyncio.create_task(container.started.wait()) if sidecar else task
            await asyncio.wait([awaited, stopping], return_when=asyncio.FIRST_COMPLETED)
            if awaited is not task:
                awaited.cancel()
            if self._stop.is_set():
                return False
            if container.role is Role.INIT and container.exit_code != 0:
                self._failed = True
                return False
        self._initialized = True
        self.changed()
        return True

    async def _end(self, running: dict[Container, asyncio.Task[None]]) -> None:
        loop = asyncio.get_running_loop()
        grace = 0.0 if self._killed else self._grace if self._stop.is_set() else self._default_grace
        deadline = loop.time() + grace
        # Sidecars outlive the containers that use them, and end in reverse order of their start, as in Kubernetes.
        others = [each for each in running if each.role is not Role.SIDECAR]
        await asyncio.gather(*(each.stop(grace) for each in others))
        for container in reversed([each for each in running if each.role is Role.SIDECAR]):
            left = max(deadline - loop.time(), min(grace, _SIDECAR_GRACE))
            await container.stop(0.0 if self._killed else left)
        # Stopped, and not cancelled: each still takes in its last output and writes its last state.
        if running:
            await asyncio.wait(running.values())
        # From here on the phase is final.
        self.ended.set()
        for container in self.containers:
            if container not in running or "waiting" in container.state:
                container.ready = False
        self.changed()
        for task in running.values():
            with contextlib.suppress(asyncio.CancelledError):
                if error := task.exception():
                    raise error
