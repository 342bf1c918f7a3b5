"""One container of a pod: started, watched, restarted and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.strategy import now
from pathways_jupyter.local.node import programs
from pathways_jupyter.local.node.container_logs import ContainerLog
from pathways_jupyter.local.node.environment import SpecError, expand, with_kill
from pathways_jupyter.local.node.exec import Exec
from pathways_jupyter.local.node.probes import Probe
from pathways_jupyter.local.node.programs import ImageError
from pathways_jupyter.local.node.spawner import Process, Spawner
from pathways_jupyter.local.node.zygote import MAIN_PID_VARIABLE, SpawnRequest, function_name
from pathways_jupyter.local.settings import Failures, RetryDelay

_CONFIG_RETRY_SECONDS = 1.0
"""Wait before looking again for a missing image or referenced object."""
_START_FAILED = 128
_LAST_OUTPUT_SECONDS = 1.0


class Role(Enum):
    """Role of a container in its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    """An init container with ``restartPolicy: Always``: it runs beside the others."""
    MAIN = "main"


class ContainerHost(Protocol):
    """Interface of a pod for its containers."""

    uid: str
    directory: Path
    restarts: RetryDelay
    spawners: Mapping[bool, Spawner]

    def environment(self, spec: Object) -> dict[str, str]:
        """Return the variables of a container with this spec; SpecError when something that it names does not exist."""

    async def dial(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of the pod."""

    def changed(self) -> None:
        """Note that a container's status changed."""

    def record(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event about the pod."""


class Container:
    """One container; :meth:`run` lasts as long as the container, restarts included."""

    def __init__(self, spec: Object, role: Role, pod: ContainerHost) -> None:
        self.spec = spec
        self.role = role
        self.name: str = spec["name"]
        self.state: Object = {"waiting": {"reason": "PodInitializing" if role is Role.MAIN else "ContainerCreating"}}
        self.last_state: Object = {}
        self.restarts = 0
        self.ready = False
        self.started = asyncio.Event()
        """Set while the container runs and its startup probe, where it has one, has succeeded."""
        self.ever_started = False
        self.log: ContainerLog | None = None
        self.previous: ContainerLog | None = None
        self._pod = pod
        self._process: Process | None = None
        # The fork server of its main process, which ends its other processes with that one.
        self._warm = False
        self._environment: dict[str, str] = {}
        self._stop = asyncio.Event()
        self._failures = Failures(pod.restarts)
        self._logs = pod.directory / "logs" / self.name

    @property
    def exit_code(self) -> int | None:
        """The exit code of the instance that ended last; None while one runs or none has run."""
        terminated = self.state.get("terminated")
        return None if terminated is None else int(terminated["exitCode"])

    @property
    def status(self) -> Object:
        """The container's entry in the pod's status."""
        status: Object = {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": "" if "waiting" in self.state and not self.ever_started else f"local/{self.spec['image']}",
            "ready": self.ready,
            "started": self.started.is_set(),
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last_state,
        }
        if self.ever_started:
            status["containerID"] = f"local://{self._pod.uid}/{self.name}/{self.restarts}"
        return status

    async def run(self, policy: str) -> None:
        """Run the container, and restart it by the restart policy, until it is stopped."""
        while not self._stop.is_set():
            try:
                code = await self._once()
            except ImageError as error:
                self._set_waiting("ErrImagePull", str(error))
                self._pod.record("Failed", str(error), warning=True)
                await self._pause(_CONFIG_RETRY_SECONDS)
                self._set_waiting("ImagePullBackOff", f"Back-off pulling image: {error}")
                # The programs of this package are all the images there are: another attempt finds no more.
                await self._stop.wait()
                return
            except SpecError as error:
                self._set_waiting("CreateContainerConfigError", str(error))
                self._pod.record("Failed", f"Error: {error}", warning=True)
                await self._pause(_CONFIG_RETRY_SECONDS)
                continue
            # Whatever the policy says, a container that was asked to end is not started again.
            if self._stop.is_set() or policy == "Never" or (policy == "OnFailure" and code == 0):
                return
            if delay := self._failures.add():
                message = f"back-off {delay:g}s restarting failed container={self.name}"
                self._pod.record("BackOff", message, warning=True)
                self._set_waiting("CrashLoopBackOff", message)
                await self._pause(delay)
            elif "terminated" in self.state:
                # Without a pause there is no waiting state, which would have moved the end of this instance.
                self.last_state = self.state
            if not self._stop.is_set():
                self.restarts += 1

    async def stop(self, grace: float) -> None:
        """Ask the container to end, and kill it after `grace` seconds; return when it has ended."""
        # First, so that run() starts no other instance whatever happens below.
        self._stop.set()
        process = self._process
        # It has none at the moment; if one is being started, _once() kills it when it is there.
        if process is None:
            return
        self._pod.record("Killing", f"Stopping container {self.name}")
        if grace > 0:
            hook = (self.spec.get("lifecycle") or {}).get("preStop") or {}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    if command := (hook.get("exec") or {}).get("command"):
                        with contextlib.suppress(LookupError, OSError):
                            await (await self.exec(list(command), stdin=False, tty=False)).wait()
                    process.send_signal(signal.SIGTERM)
                    await process.wait()
        # No-op where it has ended in time: the fork server has killed its group then.
        process.send_signal(signal.SIGKILL, group=True)
        await process.wait()

    def kill(self) -> None:
        """End the container at once."""
        self._stop.set()
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL, group=True)

    async def exec(self, command: list[str], *, stdin: bool, tty: bool) -> Exec:
        """Run a command in the container's directory and environment.

        Raises:
          LookupError: The container does not run.
          FileNotFoundError: There is no such command.
        """
        process = self._process
        if process is None:
            raise LookupError(f'container "{self.name}" is not running')
        environment = {**self._environment, MAIN_PID_VARIABLE: str(process.pid)}
        if tty:
            environment.setdefault("TERM", "xterm")
        self._locate(command, environment)
        return await Exec.start(
            lambda streams: self._spawn(command, environment, streams, main=False, tty=tty), stdin=stdin, tty=tty
        )

    async def _once(self) -> int:
        """Run one instance from start to end; return its exit code."""
        variables = self._pod.environment(self.spec)
        program, argv = programs.resolve(
            self.spec["image"],
            [expand(word, variables) for word in self.spec.get("command") or ()],
            [expand(word, variables) for word in self.spec.get("args") or ()],
            container=self.name,
        )
        probes = self._probes()
        self._environment = variables
        # The logs of two instances are kept, as `kubectl logs --previous` shows no more.
        if self.previous is not None:
            self.previous.remove()
        self.previous = self.log
        self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log = ContainerLog(self._logs / f"{self.restarts}.log")
        try:
            if program.main is None:
                self._locate(argv, variables)
            # JAX reads its variables when it is imported, which the warm fork server has done already, without them.
            self._warm = program.warm and not any(name.startswith("JAX_") for name in variables)
            output, write = os.pipe()
            null = os.open(os.devnull, os.O_RDONLY)
            try:
                await self.log.connect(output)
                streams = (null, write, write)
                process = await self._spawn(argv, variables, streams, main=True, program=program.main)
            finally:
                # This process's copies: while one is open, the output never ends for the log.
                os.close(write)
                os.close(null)
        except (FileNotFoundError, LocalClusterError) as error:
            self._pod.record("Failed", f"Error: {error}", warning=True)
            self.log.close()
            self._set_terminated(_START_FAILED, "StartError", now(), str(error))
            return _START_FAILED
        began = now()
        self._process = process
        self.ever_started = True
        self.state = {"running": {"startedAt": began}}
        self._pod.record("Started", f"Started container {self.name}")
        watching = asyncio.create_task(self._watch(process, probes))
        self._pod.changed()
        try:
            # stop() or kill() may have run while the process was being started, when there was nothing to signal.
            if self._stop.is_set():
                process.send_signal(signal.SIGKILL, group=True)
            code = await process.wait()
        finally:
            watching.cancel()
            self._process = None
        # The pipe may still hold output; it may also stay open, when a process that left the group has inherited it.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.log.ended.wait(), _LAST_OUTPUT_SECONDS)
        self.log.close()
        self._set_terminated(code, "Completed" if code == 0 else "Error", began)
        return code

    async def _spawn(
        self,
        argv: list[str],
        environment: dict[str, str],
        streams: Sequence[int],
        *,
        main: bool,
        program: Callable[[Sequence[str]], int] | None = None,
        tty: bool = False,
    ) -> Process:
        request = SpawnRequest(
            argv if program is not None else with_kill(argv),
            environment,
            str(self._directory()),
            f"{self._pod.uid}/{self.name}",
            program="" if program is None else function_name(program),
            main=main,
            name=self.name,
            tty=tty,
        )
        return await self._pod.spawners[self._warm].spawn(request, streams)

    def _locate(self, argv: list[str], environment: dict[str, str]) -> None:
        directory = self._directory()
        name = argv[0] if argv else ""
        is_there = (directory / name).is_file() if "/" in name else shutil.which(name, path=environment["PATH"])
        if not is_there:
            where = "no such file or directory" if "/" in name else "executable file not found in $PATH"
            raise FileNotFoundError(f'exec: "{name}": {where}')

    def _directory(self) -> Path:
        """Return the working directory: one for all containers of the pod, or what ``workingDir`` names below it."""
        directory = self._pod.directory / "root" / str(self.spec.get("workingDir") or "").lstrip("/")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory

    def _probes(self) -> dict[str, Probe]:
        async def run(command: list[str]) -> int:
            execution = await self.exec(command, stdin=False, tty=False)
            try:
                return await execution.wait()
            finally:
                execution.kill()

        return {
            kind: Probe(spec, self.spec, dial=self._pod.dial, run=run)
            for kind in ("startupProbe", "readinessProbe", "livenessProbe")
            if (spec := self.spec.get(kind))
        }

    async def _watch(self, process: Process, probes: dict[str, Probe]) -> None:
        """Follow the probes of a running instance."""
        if startup := probes.get("startupProbe"):
            async for succeeded in startup.results():
                if succeeded:
                    break
                self._unhealthy(process, "Startup")
                return
        # Only now: the pod's next containers wait for it, and the other probes begin.
        self.started.set()
        if "readinessProbe" not in probes:
            self.ready = True
            self._pod.changed()

        async def follow_readiness(probe: Probe) -> None:
            async for ready in probe.results():
                if not ready:
                    self._pod.record("Unhealthy", f"Readiness probe of {self.name} failed", warning=True)
                self.ready = ready
                self._pod.changed()

        async def follow_liveness(probe: Probe) -> None:
            async for alive in probe.results():
                if not alive:
                    self._unhealthy(process, "Liveness")

        # Cancelled as a whole when the container's process ends.
        async with asyncio.TaskGroup() as group:
            for kind, follow in (("readinessProbe", follow_readiness), ("livenessProbe", follow_liveness)):
                if kind in probes:
                    group.create_task(follow(probes[kind]))

    def _unhealthy(self, process: Process, what: str) -> None:
        self._pod.record("Unhealthy", f"{what} probe of {self.name} failed, the container is restarted", warning=True)
        process.send_signal(signal.SIGKILL, group=True)

    def _set_terminated(self, code: int, reason: str, began: str, message: str = "") -> None:
        self.ready = False
        self.started.clear()
        terminated: Object = {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now()}
        if message:
            terminated["message"] = message
        self.state = {"terminated": terminated}
        self._pod.changed()

    def _set_waiting(self, reason: str, message: str = "") -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        self._pod.changed()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
