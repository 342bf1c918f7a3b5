"""A machine of its own for tests that go the whole way: directories, an embedded cluster, and kernels on it."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import cli_forks
import hypothesis
import pytest
import run_processes
from kernel_transport import ipc
from waits import wait_until
from xdist.scheduler.loadfile import LoadFileScheduling

INSTANCES = "tpuv6e:2x2=2"
OF_ONE_PROCESS = {"tests/colocated", "tests/elastic"}
FROM_THE_INTERNET = {"hub", "wheel"}
"""Marks of tests that install packages."""

REAPER = pytest.StashKey[subprocess.Popen]()
"""The program that ends what this run leaves; it waits as long as this process lives."""

# A shell starts what runs in the background deaf to Interrupt, and every process that is started there inherits it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Else every worker rewrites the assertions of all tests, and every process that a test starts compiles the package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# An example of 0.2 s, or ten that take a second to make, are a fault for Hypothesis; on a busy machine they are none.
hypothesis.settings.register_profile(
    "busy",
    parent=hypothesis.settings(),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("busy")


def pytest_configure(config: pytest.Config):
    """Mark the processes of this run, those of its workers included."""
    if config.option.markexpr not in FROM_THE_INTERNET:
        # Else each process and many clients would load the system's certificates, which takes 20 ms.
        os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.stash[REAPER] = run_processes.begin()


class ByFile(LoadFileScheduling):
    """Keeps the tests of a file in one process, and those of folders whose files share a cluster of their own."""

    def _split_scope(self, nodeid: str) -> str:
        folder = nodeid.partition("::")[0].rpartition("/")[0]
        return folder if folder in OF_ONE_PROCESS else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log):
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session):
    """Count the processes that the tests have left once all workers have ended; end them, and fail the run."""
    yield
    if REAPER not in session.config.stash:
        return
    remaining = run_processes.left(os.environ[run_processes.MARK])
    if remaining:
        lines = [f"The tests left {len(remaining)} processes:", *map(run_processes.described, remaining)]
        print("", *lines, sep="\n  ")
        run_processes.end(remaining)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function):
    """Count an Interrupt that gets out of a test as its failure: it would end a worker, with the tests after it."""
    try:
        return (yield)
    except KeyboardInterrupt as error:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            raise
        raise AssertionError("An Interrupt got out of the test.") from error


@dataclass(frozen=True)
class Machine:
    """A machine on which nothing of the developer's own is seen, nor touched."""

    directory: Path
    environ: dict[str, str]

    @classmethod
    def at(cls, name: str, environ: dict[str, str]) -> Self:
        """Return one with a directory for all that is its user's."""
        directory = Path(name)
        own = {
            "HOME": name,
            "JUPYTER_RUNTIME_DIR": str(directory / "runtime"),
            "JUPYTER_CONFIG_DIR": str(directory / "config"),
            "IPYTHONDIR": str(directory / "ipython"),
        }
        return cls(directory, {**environ, **own})

    @contextlib.contextmanager
    def another(self) -> Iterator[Self]:
        """Another one, whose embedded cluster is taken down in the end."""
        # Not pytest's own directory: its names are long, and a socket's path must be short.
        with tempfile.TemporaryDirectory(prefix="pj-") as name:
            made = self.at(name, self.environ)
            try:
                yield made
            finally:
                down = made.cli("local", "down", "--yes")
                assert down.returncode == 0, down.stderr

    @contextlib.contextmanager
    def own_cluster(self, *options: str) -> Iterator[Self]:
        """Another one with an embedded cluster, as ``pathways-jupyter local up`` brings it up with these options."""
        with self.another() as made:
            up = made.cli("local", "up", *options)
            assert up.returncode == 0, up.stderr
            yield made

    @property
    def runtime(self) -> Path:
        return self.directory / "runtime"

    def cli(self, *arguments: str, timeout: float = 110, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run ``pathways-jupyter`` to its end."""
        environment = {**self.environ, **environ}
        if cli_forks.AVAILABLE:
            return cli_forks.run(arguments, environ=environment, directory=self.directory, timeout=timeout)
        return self.python("-m", "pathways_jupyter", *arguments, timeout=timeout, **environ)

    def python(self, *arguments: str, timeout: float = 110, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run Python to its end."""
        return subprocess.run(
            [sys.executable, *arguments],
            env={**self.environ, **environ},
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@dataclass
class Cell:
    """Result of one cell."""

    outputs: list[dict] = field(default_factory=list)
    status: str = ""
    error: str = ""
    """Name of the exception."""
    shown: str = ""
    """Error of the cell, as it is shown."""

    @property
    def text(self) -> str:
        """All plain text, in the order in which it stands in the notebook."""
        parts: list[str] = []
        stream = None
        for each in self.outputs:
            text = each.get("text", "") or each.get("data", {}).get("text/plain", "")
            # A busy kernel may send what one print() writes in two pieces; front ends put them together again.
            if parts and "text" in each and each.get("name") == stream:
                parts[-1] += text
            else:
                parts.append(text)
            stream = each.get("name") if "text" in each else None
        return "\n".join(parts)

    @property
    def html(self) -> str:
        return "\n".join(each.get("data", {}).get("text/html", "") for each in self.outputs)


class Notebook:
    """A real kernel, and the outputs of its cells as a front end would keep them.

    Args:
      manager: Has a kernelspec of its own; by default it is this Python's.
      directory: The notebook's folder; by default the machine's.
    """

    def __init__(self, machine: Machine, manager=None, directory: Path | None = None) -> None:
        from jupyter_client.manager import KernelManager

        self._environ = machine.environ
        self.manager = manager or KernelManager(**ipc(machine.directory))
        self.manager.start_kernel(env=machine.environ, cwd=str(directory or machine.directory))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=100)
        self.displays: dict[str, dict] = {}
        self.seen: list[str] = []
        """Every output as plain text, also those that were drawn over since."""
        self.hangs = False
        """True once a cell did not end in its time: the kernel may never answer again."""

    def run(self, code: str, *, timeout: float = 90) -> Cell:
        """Run a cell to its end."""
        return self.finish(self.begin(code), timeout=timeout)

    def connect(self, options: str, *, timeout: float = 90) -> Cell:
        """Load the extension, and connect with the options of ``%pathways connect``."""
        connected = self.run(f"%load_ext pathways_jupyter\n%pathways connect {options}", timeout=timeout)
        assert connected.status == "ok", connected.shown
        return connected

    def begin(self, code: str) -> str:
        """Start a cell, and return without waiting for it."""
        return self.client.execute(code)

    def finish(self, request: str, *, timeout: float = 90, until: str = "") -> Cell:
        """Wait for a cell's end, or until it has shown the text `until`."""
        try:
            return self._finish(request, timeout, until)
        except BaseException:
            # Also the test's own limit of time, which is raised here.
            self.hangs = True
            raise

    def _finish(self, request: str, timeout: float, until: str) -> Cell:
        cell = Cell()
        deadline = time.monotonic() + timeout
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"The cell still runs after {timeout} s; it showed:\n{cell.text}") from None
            kind, content = message["msg_type"], message["content"]
            shown = self._take(kind, content)
            if message["parent_header"].get("msg_id") != request:
                continue
            if shown is not None:
                cell.outputs.append(shown)
            if kind == "error":
                cell.error, cell.shown = content["ename"], "\n".join(content["traceback"])
            if (kind == "status" and content["execution_state"] == "idle") or (until and until in cell.text):
                cell.status = "error" if cell.error else "ok"
                return cell

    def wait_for(self, text: str, *, since: int = 0, timeout: float = 60) -> str:
        """Wait until an output, new or drawn again, says `text`; returns it.

        Args:
          since: How many outputs had been seen before the one that is meant.
        """
        deadline = time.monotonic() + timeout
        while True:
            for plain in self.seen[since:]:
                if text in plain:
                    return plain
            since = len(self.seen)
            try:
                message = self.client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"No output said {text!r} within {timeout} s.") from None
            self._take(message["msg_type"], message["content"])

    def _take(self, kind: str, content: dict) -> dict | None:
        """Keep an output as a front end does; None for what is drawn over an earlier one."""
        display = (content.get("transient") or {}).get("display_id")
        if "text" in content or "data" in content:
            self.seen.append(content.get("text") or content["data"].get("text/plain", ""))
        if kind == "update_display_data":
            # One that a test has cleared away may still be drawn over, as a front end may have lost it.
            if display in self.displays:
                self.displays[display].update(data=content["data"])
            return None
        if kind not in {"stream", "display_data", "execute_result"}:
            return None
        output = dict(content)
        if display:
            self.displays[display] = output
        return output

    def restart(self) -> None:
        """Kill a kernel that hangs, or one that has died, and start it anew, so that the next tests have one."""
        self.manager.restart_kernel(now=True)
        self.client.wait_for_ready(timeout=60)
        self.hangs = False

    def close(self) -> None:
        """End the kernel, and wait until its session is gone, which would hold slices that the next test wants."""
        pid = self.manager.provisioner.pid
        self.client.stop_channels()
        if self.manager.is_alive():
            self.manager.shutdown_kernel(now=self.hangs)
        wait_until(lambda: pid not in self._kernels_with_sessions())

    def _kernels_with_sessions(self) -> set[int]:
        runtime = Path(self._environ["JUPYTER_RUNTIME_DIR"]) / "pathways"
        found = set()
        for path in runtime.glob("*.json"):
            # It may go, or be written, while it is read.
            with contextlib.suppress(OSError, ValueError):
                found.add(json.loads(path.read_text()).get("kernel_pid"))
        return found


@pytest.fixture(scope="session")
def machine():
    # Not pytest's own directory: its names are long, and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pj-") as directory:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PATHWAYS_", "KUBE"))}
        yield Machine.at(directory, {**kept, "JAX_PLATFORMS": ""})


@pytest.fixture(scope="session")
def cluster(machine):
    """The embedded cluster of `machine`, as ``pathways-jupyter local up`` brings it up; its kubeconfig."""
    # Tests that lose a worker cannot wait for a replacement as long as a real cluster takes.
    up = machine.cli("local", "up", "--tpu", INSTANCES, "--fast-heal", "--json")
    assert up.returncode == 0, up.stdout + up.stderr
    yield Path(machine.cli("local", "kubeconfig").stdout.strip())
    assert machine.cli("local", "down", "--yes").returncode == 0


@pytest.fixture
def bench_type():
    """The class of `bench`, which a folder may replace by its own; for tests with an event loop of their own."""
    from quiet_cluster import QuietCluster

    return QuietCluster


@pytest.fixture
async def bench(bench_type, tmp_path):
    """An API server with a kubelet and no controllers, so that objects stay as tests create them."""
    async with bench_type(tmp_path) as made:
        yield made


@pytest.fixture
async def client(bench):
    """A client of `bench` that may do everything."""
    async with bench.client() as made:
        yield made


@pytest.fixture
def open_notebook(machine):
    """Open notebooks, each with a kernel of its own; the test's end closes them."""
    with contextlib.ExitStack() as stack:
        yield lambda on=machine, **options: stack.enter_context(contextlib.closing(Notebook(on, **options)))


@pytest.fixture
def notebook(open_notebook):
    return open_notebook()


@pytest.fixture(scope="module")
def shared_notebook(machine):
    """One kernel for all tests of a file; each has to leave it as it was."""
    with contextlib.closing(Notebook(machine)) as notebook:
        yield notebook


@pytest.fixture
def cleared_notebook(shared_notebook):
    """The same kernel, which has shown nothing yet; at the test's end it is disconnected, and forgets its names."""
    shared_notebook.displays.clear()
    shared_notebook.seen.clear()
    yield shared_notebook
    if shared_notebook.hangs or not shared_notebook.manager.is_alive():
        shared_notebook.restart()
    else:
        shared_notebook.run("%pathways disconnect")
        shared_notebook.run("%reset -f")
