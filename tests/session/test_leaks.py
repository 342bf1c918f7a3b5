"""Nothing leaks: however a session ends, its Job, pod, Lease, processes, sockets and files are gone.

Each ending happens to a real kernel, connected to the embedded cluster.
"""

from __future__ import annotations

import contextlib
import os
import signal
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client import KernelManager

from pathways_jupyter.local.cluster import Cluster
from pathways_jupyter.session import registry

pytestmark = pytest.mark.timeout(300)

DEADLINE = 90.0

# Minimal, because a traceback through JAX's own frames takes IPython longer to draw than all of the rest.
PRELUDE = """
%xmode Minimal
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.session import session as sessions
config = {config!r}
def connect():
    connecting = sessions.start(config)
    print("session", connecting._link.session, flush=True)
    for event in connecting:
        print(event.kind, event.data.get("stage"), event.data.get("state"), flush=True)
    return connecting.session
"""

COMPUTE = """
print("computing", flush=True)
while True:
    float(jnp.ones((64, 64)).sum())
"""

TIDY = """
if sessions.current() is not None:
    sessions.current().disconnect()
"""


class Kernel:
    """A kernel, as a notebook has one."""

    def __init__(self) -> None:
        # As a Jupyter server names it, which is how a kernel learns its own id.
        directory = Path(os.environ["JUPYTER_RUNTIME_DIR"])
        self.manager = KernelManager(
            kernel_name="python3", connection_file=str(directory / f"kernel-{uuid.uuid4()}.json")
        )
        self.manager.start_kernel()
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)
        self.text = ""

    @property
    def pid(self) -> int:
        return self.manager.provisioner.process.pid

    @property
    def session(self) -> str:
        return self.text.split("session ", 1)[1].split()[0]

    def run(self, code: str, heard: Callable[[str], Any] = lambda text: None) -> dict[str, Any]:
        """Runs a cell; `heard` is called with everything printed so far whenever there is more."""

        def output(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                self.text += message["content"]["text"]
                heard(self.text)

        return self.client.execute_interactive(textwrap.dedent(code), timeout=DEADLINE, output_hook=output)["content"]

    def ok(self, code: str, heard: Callable[[str], Any] = lambda text: None) -> None:
        answer = self.run(code, heard)
        assert answer["status"] == "ok", "\n".join(answer.get("traceback", ()))

    def interrupted(self, code: str, when: str) -> None:
        """Runs a cell that is interrupted once it has printed `when`."""
        once = threading.Event()

        def heard(text: str) -> None:
            if when in text and not once.is_set():
                once.set()
                self.manager.interrupt_kernel()

        answer = self.run(code, heard)
        assert (once.is_set(), answer.get("ename")) == (True, "KeyboardInterrupt")

    def connect(self) -> str:
        self.ok("s = connect()\nimport jax, jax.numpy as jnp\nprint(jnp.arange(8.0).sum())")
        assert "28.0" in self.text
        return self.session

    def close(self) -> None:
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture(scope="module")
def kernels() -> Iterator[list[Kernel]]:
    """Kernels that outlived the test that used them."""
    pool: list[Kernel] = []
    yield pool
    for kernel in pool:
        kernel.close()


@pytest.fixture
def kernel(config, kernels) -> Iterator[Kernel]:
    """A kernel without a session."""
    made = kernels.pop() if kernels else Kernel()
    made.text = ""
    made.ok(PRELUDE.format(config=config(2)))
    yield made
    if made.manager.has_kernel and made.manager.is_alive() and made.run(TIDY)["status"] == "ok":
        kernels.append(made)
    else:
        made.close()


def disconnect(kernel: Kernel, cluster: Cluster) -> None:
    kernel.ok("print(s.disconnect())\nassert jax.devices()[0].platform == 'cpu'")
    assert "left=''" in kernel.text


def shutdown(kernel: Kernel, cluster: Cluster) -> None:
    kernel.manager.shutdown_kernel()


def shutdown_now(kernel: Kernel, cluster: Cluster) -> None:
    kernel.manager.shutdown_kernel(now=True)


def restart(kernel: Kernel, cluster: Cluster) -> None:
    kernel.manager.restart_kernel()


def exit_from_a_cell(kernel: Kernel, cluster: Cluster) -> None:
    kernel.run("import os; os._exit(1)" if os.name == "nt" else "exit()")


def sigterm(kernel: Kernel, cluster: Cluster) -> None:
    os.kill(kernel.pid, signal.SIGTERM)


def sigkill(kernel: Kernel, cluster: Cluster) -> None:
    os.kill(kernel.pid, signal.SIGKILL)


def sigkill_while_computing(kernel: Kernel, cluster: Cluster) -> None:
    def heard(text: str) -> None:
        if "computing" in text:
            os.kill(kernel.pid, signal.SIGKILL)
            raise EOFError

    with contextlib.suppress(EOFError):
        kernel.run(COMPUTE, heard)


def interrupt_while_computing_then_disconnect(kernel: Kernel, cluster: Cluster) -> None:
    kernel.interrupted(COMPUTE, "computing")
    kernel.ok("assert s.state == 'connected', s.state\nassert jnp.ones(4).sum() == 4")
    disconnect(kernel, cluster)


def sigterm_to_the_supervisor(kernel: Kernel, cluster: Cluster) -> None:
    os.kill(registry.read(kernel.session).pid, signal.SIGTERM)


def sigkill_to_the_supervisor(kernel: Kernel, cluster: Cluster) -> None:
    os.kill(registry.read(kernel.session).pid, signal.SIGKILL)
    kernel.ok(f"kinds = [event.kind for event in s.follow()]\nprint(kinds)\nassert s._link.close(patience={DEADLINE})")
    assert "supervisor-lost" in kernel.text


def sigkill_to_the_supervisor_while_disconnecting(kernel: Kernel, cluster: Cluster) -> None:
    pid = registry.read(kernel.session).pid
    kernel.ok("print('now', flush=True)\ns.disconnect()", lambda text: "now" in text and _kill(pid))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def api_server_restarts_while_connected(kernel: Kernel, cluster: Cluster) -> None:
    cluster.restart_api()
    kernel.ok("for event in s.follow():\n    if event.kind == 'proxy-lost': break")
    kernel.manager.shutdown_kernel()


def api_server_restarts_while_disconnecting(kernel: Kernel, cluster: Cluster) -> None:
    restarting = threading.Thread(target=cluster.restart_api)
    kernel.ok("print('now', flush=True)\ns.disconnect()", lambda text: restarting.start() if "now" in text else None)
    restarting.join()


@pytest.mark.parametrize(
    "end",
    [
        disconnect,
        shutdown,
        shutdown_now,
        restart,
        exit_from_a_cell,
        sigterm,
        sigkill,
        sigkill_while_computing,
        interrupt_while_computing_then_disconnect,
        sigterm_to_the_supervisor,
        sigkill_to_the_supervisor,
        sigkill_to_the_supervisor_while_disconnecting,
        api_server_restarts_while_connected,
        api_server_restarts_while_disconnecting,
    ],
)
def test_nothing_is_left_after(end, kernel, cluster, made_by, gone):
    session = kernel.connect()
    assert made_by(session) == {"jobs": 1, "leases": 1, "pods": 1}
    end(kernel, cluster)
    gone(session)


def test_nothing_is_left_after_an_interrupt_while_connecting(kernel, hold, gone):
    hold(1)
    kernel.ok("import dataclasses\nconfig = dataclasses.replace(config, wait=float('inf'))")
    kernel.interrupted("connect()", "waiting")
    gone(kernel.session)
    kernel.ok("assert sessions.current() is None\nimport jax\nassert jax.devices()[0].platform == 'cpu'")


def test_nothing_is_left_when_the_kernel_is_killed_while_connecting(kernel, hold, gone):
    hold(1)

    def heard(text: str) -> None:
        if "waiting" in text:
            os.kill(kernel.pid, signal.SIGKILL)
            raise EOFError

    with contextlib.suppress(EOFError):
        kernel.run("import dataclasses\nconfig = dataclasses.replace(config, wait=float('inf'))\nconnect()", heard)
    gone(kernel.session)


def test_nothing_is_left_when_the_api_server_restarts_while_connecting(kernel, cluster, gone):
    restarting = threading.Thread(target=cluster.restart_api)
    begun = threading.Event()

    def heard(text: str) -> None:
        if "create" in text and not begun.is_set():
            begun.set()
            restarting.start()

    kernel.run("s = connect()", heard)
    restarting.join()
    kernel.manager.shutdown_kernel()
    gone(kernel.session)


def test_when_kernel_and_supervisor_die_together_the_lease_ends_the_proxy(kernel, config, nothing_left, gone):
    """Nobody of the session is left to clean up: in the cluster its operator does, once the lease has run out."""
    kernel.ok("import dataclasses\nconfig = dataclasses.replace(config, lease_seconds=2.0)")
    session = kernel.connect()
    record = registry.read(session)
    for pid in (kernel.pid, record.pid):
        os.kill(pid, signal.SIGKILL)
    # As if the machine had died with them, and its files were another's.
    psutil.wait_procs([psutil.Process(pid) for pid in (kernel.pid, record.pid) if psutil.pid_exists(pid)], DEADLINE)
    registry.remove(record)
    gone(session)


def test_a_restarted_kernel_takes_over_what_lingers_and_nothing_is_left_after(kernel, config, gone):
    lingering = PRELUDE.format(config=config(2, linger=DEADLINE))
    kernel.ok(lingering)
    session = kernel.connect()
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=DEADLINE)
    kernel.text = ""
    kernel.ok(lingering)
    assert kernel.connect() == session
    disconnect(kernel, None)
    gone(session)


def test_nothing_is_left_when_nobody_takes_over_what_lingers(kernel, config, gone):
    kernel.ok(PRELUDE.format(config=config(2, linger=0.5)))
    session = kernel.connect()
    os.kill(kernel.pid, signal.SIGKILL)
    gone(session)
