"""One kernel in a lab's pod, for a notebook of another machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from pathways_jupyter.base import runtime_files, tasks
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kernel import differences, fetch
from pathways_jupyter.kernel.zmq_handshake import SOCKETS
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.multiplexer import Multiplexer, StreamChannel

_READ_BYTES = 256 * 1024
_LISTEN_SECONDS = 60.0
_TERMINATE_SECONDS = 2.5
_LAST_WORDS_SECONDS = 1.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.1


class HostedKernel:
    """A kernel of another machine.

    Args:
      setup: The near end's message: the kernel's ``id`` on its ``machine``, the unique ``run``, the ``key`` of its
        messages, and ``environment``, and the name of its ``folder``.
      channels: The near end's.
      spares: Has the process.
    """

    def __init__(self, setup: dict[str, Any], channels: Multiplexer, spares: SpareKernels) -> None:
        self._spares = spares
        self.id, self.run_id, self.machine = str(setup["id"]), str(setup["run"]), str(setup["machine"])
        self._setup = setup
        self.channels = channels
        # In the embedded cluster the pod's own temporary directory may have too long a path for sockets.
        self._directory = runtime_files.socket_directory("pathways-", f"k-{len(SOCKETS)}")
        self._process: asyncio.subprocess.Process | None = None
        self._ends = False
        self._last = ""
        self._listening = asyncio.Event()
        self.carried: set[StreamChannel] = set()
        """The near end's channels to it."""

    def _socket(self, name: str) -> str:
        return f"{self._directory}/k-{list(SOCKETS).index(name) + 1}"

    async def listening(self, name: str) -> str:
        """Return the path of one of the kernel's sockets once it listens, or has ended."""
        await self._listening.wait()
        return self._socket(name)

    async def run(self) -> None:
        """Run the kernel; post ``ready`` when it listens, and ``exit`` once all its output is on its way."""
        process = self._process = await self._spares.take()
        assert process.stdin is not None
        if self._ends:
            self.signal(signal.SIGKILL)
        folder = folder_of(self._setup["folder"])
        folder.mkdir(exist_ok=True)
        (self._directory / fetch.FOLDER).symlink_to(folder)
        about = {"file": self._write_connection_file(), "environment": self._setup["environment"]}
        about |= {"directory": str(folder), "begin": self._setup["begin"]}
        process.stdin.write(json.dumps(about).encode() + b"\n")
        reading, listening = (asyncio.create_task(each) for each in (self._read_errors(process), self._listen()))
        fetching = await portforward.listen(None, path=self._directory / fetch.SOCKET, open_stream=self._open_fetch)
        try:
            code = await process.wait()
            # A child of the kernel's may hold the other end of the pipe for longer.
            await asyncio.wait({reading}, timeout=_LAST_WORDS_SECONDS)
            await self.channels.drain(self.carried)
            self._post({"exit": code, "last": self._last})
        finally:
            await tasks.stop(reading, listening)
            await fetching.close()

    async def _open_fetch(self) -> StreamChannel:
        return self.channels.open({"kernel": self.run_id, "fetch": True})

    def remove(self) -> None:
        """Remove its sockets, once it has ended or cannot begin."""
        self._listening.set()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _write_connection_file(self) -> str:
        # The product finds the kernel's id in this file's name.
        path = self._directory / f"kernel-{self.id}.json"
        ports = {f"{name}_port": number for number, name in enumerate(SOCKETS, 1)}
        about = {**ports, "transport": "ipc", "ip": f"{self._directory}/k", "key": self._setup["key"]}
        about |= {"signature_scheme": "hmac-sha256", "kernel_name": ""}
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(about, file)
        return str(path)

    @property
    def _listens(self) -> bool:
        return all(os.path.exists(self._socket(name)) for name in SOCKETS)

    def signal(self, number: int) -> None:
        """Send a signal to the kernel and its children."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _post(self, message: dict[str, Any]) -> None:
        self.channels.post({"kernel": self.run_id, **message})

    async def end(self) -> None:
        """End the kernel, also one that is about to begin."""
        self._ends = True
        process = self._process
        if process is not None and process.returncode is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _TERMINATE_SECONDS)
            self.signal(signal.SIGKILL)

    async def _listen(self) -> None:
        versions = asyncio.create_task(asyncio.to_thread(differences.versions, self._setup["packages"]))
        async for _ in (attempts := Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=_LISTEN_SECONDS)):
            if self._listens:
                self._listening.set()
                self._spares.prepare()
                self._post({"ready": True, "versions": await versions})
                return
            if attempts.is_over:
                self._last = f"it does not listen after {_LISTEN_SECONDS:.0f} s"
                self.signal(signal.SIGKILL)
                return

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        """Pass the kernel's standard error on to the container's log, and keep its last line."""
        assert process.stderr is not None
        while data := await process.stderr.read(_READ_BYTES):
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
            if lines := [line for line in data.decode(errors="replace").splitlines() if line.strip()]:
                self._last = lines[-1].strip()


class SpareKernels:
    """A process for the next kernel, which need not wait for its imports."""

    def __init__(self) -> None:
        self._next: asyncio.Task[asyncio.subprocess.Process] | None = None

    def prepare(self) -> None:
        """Start a process, unless there is one."""
        if self._next is None:
            self._next = asyncio.create_task(self._start())

    async def take(self) -> asyncio.subprocess.Process:
        """Return a process that waits for its kernel."""
        self.prepare()
        assert self._next is not None
        spare, self._next = self._next, None
        process = await spare
        return process if process.returncode is None else await self._start()

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pathways_jupyter.kernel.lab_kernel"),
            env={**os.environ, "JPY_PARENT_PID": str(os.getpid())},
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )


def folder_of(name: str) -> Path:
    """Return the copy of a notebook's folder; the home directory for an empty name.

    Raises:
      OSError: It is none.
    """
    if name in {".", ".."} or "/" in name:
        raise OSError(f"{name!r} is not the name of a folder")
    return Path.home() / name
