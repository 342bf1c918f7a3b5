"""A machine of its own for a soak: private directories, an embedded cluster, kernels, and an inventory of all of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from jupyter_client import KernelManager

from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, list_
from pathways_jupyter.local import cluster as local
from pathways_jupyter.service.names import SESSION_LABEL

INSTANCE = "tpuv6e:2x2"
_PRIVATE = ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "HOME")

# A shell starts background jobs with SIGINT ignored, and every process started from here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Machine:
    """Private directories and an embedded cluster, for as long as the ``with`` block runs.

    Args:
      slices: How many slices the cluster has.
    """

    cluster: local.LocalCluster

    def __init__(self, slices: int = 2) -> None:
        self._slices = slices

    def __enter__(self) -> Self:
        # Short, because the path of a socket must be.
        self._directory = tempfile.TemporaryDirectory(prefix="pj-soak-")
        for name in _PRIVATE:
            os.environ[name] = f"{self._directory.name}/{name.lower()}"
            Path(os.environ[name]).mkdir(mode=0o700)
        # Sockets whose path would be too long elsewhere are there; those of other sessions of this machine in /tmp.
        tempfile.tempdir = os.environ["TMPDIR"] = f"{self._directory.name}/tmp"
        Path(tempfile.tempdir).mkdir(mode=0o700)
        os.environ.pop("KUBECONFIG", None)
        self.runtime = Path(os.environ["JUPYTER_RUNTIME_DIR"]) / "pathways"
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        local.down()
        self._directory.cleanup()

    def up(self) -> None:
        """Start the embedded cluster, unless it runs."""
        self.cluster = local.up({INSTANCE: self._slices}, sidecar=True, fast_heal=True)

    def inventory(self) -> Counter[str]:
        """Return what sessions have on this machine and in the cluster, by name; empty when there is nothing."""
        found = Counter(asyncio.run(self._objects()))
        found.update(f"process {name}" for name in self.processes() if "pathways_jupyter.session" in name)
        clusters = {self.cluster.directory.name}
        found.update(f"file {path.name}" for path in self.runtime.iterdir() if path.name not in clusters)
        found.update(f"socket {path.name}" for path in Path(tempfile.gettempdir()).glob("pathways-*/*.sock"))
        return found

    def wait_until_empty(self, *, seconds: float) -> Counter[str]:
        """Return what is left after `seconds`, as soon as nothing is."""
        deadline = time.monotonic() + seconds
        while True:
            left = self.inventory()
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.1)

    def processes(self) -> list[str]:
        """The command lines of all processes that run in this machine's directories, but for this one."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get("JUPYTER_RUNTIME_DIR") == os.environ["JUPYTER_RUNTIME_DIR"]:
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
        return found

    def wait_until_ended(self, *, seconds: float) -> list[str]:
        """The processes that still run after `seconds`; returns as soon as there are none."""
        deadline = time.monotonic() + seconds
        while (running := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return running

    async def _objects(self) -> list[str]:
        async with Client(load(str(self.cluster.kubeconfig))) as client:
            return [
                f"{resource.kind} {item['metadata']['name']}"
                for resource in (JOBS, LEASES, PODS)
                for item in (await list_(client, resource, namespace="default", labels=SESSION_LABEL)).items
            ]


class Kernel:
    """A real kernel, as a notebook has one."""

    def __init__(self, name: str = "python3") -> None:
        self.manager = KernelManager(kernel_name=name)
        self.manager.start_kernel()
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.process.pid)  # type: ignore[union-attr]

    def begin(self, code: str) -> str:
        """Start a cell; returns its request without waiting."""
        return str(self.client.execute(code))

    def finish(self, request: str, *, seconds: float) -> str:
        """Wait until a cell is over, or the kernel has died, and return what it printed and raised.

        Raises:
          TimeoutError: It still runs after `seconds`.
        """
        said, deadline = "", time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                if not self.manager.is_alive():
                    code = self.manager.provisioner.process.returncode  # type: ignore[union-attr]
                    return f"{said}\nthe kernel has died, exit code {code}"
            else:
                content: dict[str, Any] = message["content"]
                # What C++ code writes at its end belongs to no cell.
                if message["parent_header"].get("msg_id") not in {request, None}:
                    continue
                said += content.get("text", "") + "\n".join(content.get("traceback", ()))
                if content.get("execution_state") == "idle":
                    return said
        raise TimeoutError(said)

    def run(self, code: str, *, seconds: float = 120) -> str:
        """Run a cell to its end."""
        return self.finish(self.begin(code), seconds=seconds)

    def close(self) -> None:
        """End the kernel, if it still runs."""
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
