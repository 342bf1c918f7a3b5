"""Pathways' programs as real processes, in the same environment as in the embedded cluster."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from warm_forks import WarmFork, WarmForks

from pathways_jupyter.local.node import programs

DEADLINE = 100.0
_PACKAGE = "pathways_jupyter.local.pathways"
_numbers = itertools.count(1)


class Lines:
    """Output of a process, line by line, for tests to wait on."""

    def __init__(self, stream: Any) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def wait(self, pattern: str, *, after: int = 0, deadline: float = DEADLINE) -> int:
        """Wait for a line from number `after` on that matches, and return the number of the line behind it."""
        found = 0

        def there() -> bool:
            nonlocal found
            for number, line in enumerate(self._lines[after:], start=after):
                if re.search(pattern, line):
                    found = number + 1
                    return True
            return self._ended

        with self._changed:
            self._changed.wait_for(there, deadline)
        assert found, f"no line matches {pattern!r}:\n{self}"
        return found

    def __str__(self) -> str:
        return "".join(self._lines)

    def _read(self, stream: Any) -> None:
        for line in stream:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Program:
    """One of Pathways' programs, running."""

    def __init__(self, process: subprocess.Popen[str] | WarmFork) -> None:
        self.process = process
        self.log = Lines(process.stdout)

    @classmethod
    def started(cls, module: str, args: Sequence[str], environment: dict[str, str], cwd: Path) -> Program:
        code = f"import sys; from {module} import main; sys.exit(main(sys.argv[1:]))"
        # Standard output comes with the errors, as in a pod's log.
        process = subprocess.Popen(
            [sys.executable, "-c", code, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=cwd,
            text=True,
            # XLA repeats what it could not read.
            errors="replace",
        )
        return cls(process)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Client:
    """A JAX of its own, see jax_client.py."""

    def __init__(self, target: str) -> None:
        script = Path(__file__).with_name("jax_client.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = Lines(self.process.stderr)
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._unfinished = 0
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, code: str) -> None:
        """Send a snippet without waiting for it."""
        request = {"code": textwrap.dedent(code), "name": f"snippet-{next(_numbers)}"}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        self._unfinished += 1

    def finish(self, deadline: float = DEADLINE) -> Any:
        """The variable `result` after the oldest snippet that was not finished; its error is raised."""
        answer = json.loads(self._answers.get(timeout=deadline))
        self._unfinished -= 1
        if "error" in answer:
            raise RemoteError(answer["message"], answer["traceback"])
        return answer["value"]

    def run(self, code: str, deadline: float = DEADLINE) -> Any:
        while self._unfinished:
            with contextlib.suppress(RemoteError):
                self.finish(deadline)
        self.start(code)
        return self.finish(deadline)

    def close(self) -> None:
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(DEADLINE)
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put(json.dumps({"error": "Ended", "message": str(self.log), "traceback": str(self.log)}))


class RemoteError(Exception):
    """A snippet raised."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.add_note(traceback)


class Service:
    """A resource manager, and the workers and proxies that a test starts beside it."""

    def __init__(
        self, directory: Path, instance_type: str = "tpuv6e:2x2", slices: int = 2, forks: WarmForks | None = None
    ) -> None:
        self._directory = directory
        self._forks = forks
        self._instance_type = instance_type
        self._slices = slices
        self._names = directory / "names"
        self._names.mkdir()
        (self._names / "head.service").symlink_to(directory / "head")
        self.programs: list[Program] = []
        self.clients: list[Client] = []
        self.resource_manager = self.start_resource_manager()

    def start_resource_manager(self) -> Program:
        flags = ["--server_port=29001", "--gcs_scratch_location=", "--node_type=resource_manager"]
        flags += [f"--instance_count={self._slices}", f"--instance_type={self._instance_type}"]
        self.resource_manager = self.start("resource_manager", "head", flags)
        self.resource_manager.log.wait(r"Pathways Server serving on \[::\]:29001")
        return self.resource_manager

    def worker(self, slice_index: int, host: int = 0) -> Program:
        flags = ["--server_port=29005", "--resource_manager_address=head.service:29001", "--gcs_scratch_location="]
        pod = f"service-worker-{slice_index}-{host}"
        place = {
            "MEGASCALE_SLICE_ID": str(slice_index),
            "JOB_COMPLETION_INDEX": str(host),
            "JOBSET_NAME": "service",
            "REPLICATED_JOB_NAME": "worker",
        }
        return self.start("worker", pod, flags, place)

    def sidecar(self, slice_index: int, host: int = 0, **environment: str) -> Program:
        """The sidecar in the pod of a worker: it shares the worker's sockets and working directory."""
        place = {"GRPC_SERVER_ADDRESS": "0.0.0.0:50051", "JAX_PLATFORMS": "proxy", **environment}
        program = self.start(
            "pathways_jupyter.local.pathways.sidecar", f"service-worker-{slice_index}-{host}", [], place
        )
        program.log.wait("sidecar serving")
        return program

    def directory(self, slice_index: int, host: int = 0) -> Path:
        """A worker pod's working directory."""
        return self._directory / f"service-worker-{slice_index}-{host}"

    def proxy(
        self,
        name: str,
        slices: int = 2,
        instance_type: str | None = None,
        more: Sequence[str] = (),
        **environment: str,
    ) -> Program:
        wanted = ",".join([instance_type or self._instance_type] * slices)
        flags = ["--server_port=29000", "--resource_manager_address=head.service:29001", "--gcs_scratch_location="]
        return self.start("proxy_program", name, [*flags, f"--virtual_slices={wanted}", *more], environment)

    def start(self, module: str, pod: str, flags: list[str], more: dict[str, str] | None = None) -> Program:
        sockets = self._directory / pod
        sockets.mkdir(mode=0o700, exist_ok=True)
        environment = {
            # Not the bucket of a session that another test of this process has had.
            **{name: value for name, value in os.environ.items() if not name.startswith("STORAGE_")},
            "HOSTNAME": pod,
            "PATHWAYS_LOCAL_NAMES": str(self._names),
            "PATHWAYS_LOCAL_SOCKETS": str(sockets),
            "TMPDIR": str(sockets),
            **(more or {}),
        }
        if module == "proxy_program" and self._forks is not None:
            assert not more, "JAX reads its variables when it is imported."
            program = Program(self._forks.start(programs.proxy, flags, environment, sockets))
        else:
            module = module if "." in module else f"{_PACKAGE}.{module}"
            program = Program.started(module, flags, environment, sockets)
        self.programs.append(program)
        return program

    def target(self, proxy: str) -> str:
        return f"grpc://unix:{self._directory / proxy / '29000'}"

    def client(self, proxy: str) -> Client:
        client = Client(self.target(proxy))
        self.clients.append(client)
        return client

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for program in self.programs:
            # A stopped process does not notice anything else.
            with contextlib.suppress(ProcessLookupError):
                program.process.send_signal(signal.SIGCONT)
            program.kill()


@pytest.fixture(scope="session")
def warm_forks() -> Iterator[WarmForks]:
    """Forks for a file whose proxies are many and short-lived; in one that computes, XLA works a tenth longer."""
    with contextlib.closing(WarmForks()) as forks:
        yield forks


@pytest.fixture(scope="module")
def make_service() -> Iterator[Callable[..., Service]]:
    """Make services that end with the module."""
    # Not pytest's own directory: its path is too long for a unix socket.
    directory = Path(tempfile.mkdtemp(prefix="pw"))
    made: list[Service] = []

    def make(**options: Any) -> Service:
        own = directory / str(len(made))
        own.mkdir(mode=0o700)
        made.append(Service(own, **options))
        return made[-1]

    yield make
    for service in made:
        service.close()
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def service(make_service) -> Service:
    """Two slices of four chips with their workers, and a proxy named ``proxy`` that has both."""
    service = make_service()
    for each in range(2):
        service.worker(each)
    service.proxy("proxy").log.wait("All 2 slices are placed")
    return service


@pytest.fixture(scope="module")
def client(service) -> Client:
    """A JAX on that proxy."""
    return service.client("proxy")


@pytest.fixture(scope="module")
def client_with_sidecars(make_service) -> Client:
    """A JAX on two slices whose hosts have sidecars for colocated Python."""
    service = make_service()
    for each in range(2):
        service.worker(each)
        service.sidecar(each)
    service.proxy("proxy", more=["--sidecar_name=external"]).log.wait("All 2 slices are placed")
    return service.client("proxy")


@pytest.fixture(scope="module")
def plain_client() -> Iterator[Client]:
    """A JAX on eight plain CPU devices."""
    client = Client("")
    yield client
    client.close()
