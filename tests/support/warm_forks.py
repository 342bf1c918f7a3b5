"""Programs that use JAX in forks of a process that has imported it, as the embedded cluster starts them."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from pathways_jupyter.local.node import programs, zygote
from pathways_jupyter.local.node.spawner import Process, Spawner


class WarmForks:
    """The embedded cluster's fork server, for tests without an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # The fork server ends with the thread that starts it.
        self._thread = threading.Thread(target=self._loop.run_forever, name="warm-forks", daemon=True)
        self._thread.start()
        self._spawner = Spawner(programs.preload_jax)
        # On the loop, on which it has its tasks.
        self.run(self._start())

    async def _start(self) -> None:
        self._spawner.start()

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    def start(
        self, program: Callable[..., int], args: Sequence[str], environment: Mapping[str, str], cwd: Path
    ) -> "WarmFork":
        """Start a program; its standard output comes with the errors, as in a pod's log."""
        request = zygote.SpawnRequest(
            list(args), environment, str(cwd), cwd.name, zygote.function_name(program), name=program.__name__
        )
        reading, writing = os.pipe()
        try:
            with open(os.devnull) as null:
                process = self.run(self._spawner.spawn(request, [null.fileno(), writing, writing]))
        finally:
            os.close(writing)
        return WarmFork(self, process, reading)

    def close(self) -> None:
        self.run(self._spawner.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class WarmFork:
    """One program, with as much of :class:`subprocess.Popen` as tests use."""

    def __init__(self, forks: WarmForks, process: Process, output: int) -> None:
        self._forks = forks
        self._process = process
        self.pid = process.pid
        # XLA repeats what it could not read.
        self.stdout = open(output, encoding="utf-8", errors="replace")  # noqa: SIM115

    def wait(self, timeout: float | None = None) -> int:
        return self._forks.run(self._process.wait(), timeout)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(self.pid).send_signal(number)

    def kill(self) -> None:
        if not self._process.ended.done():
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(self.pid).kill()
