"""Nothing leaks: however a session ends, a moment later its Job, pod, Lease, processes, sockets and files are gone.

Each ending happens to a real kernel, connected to the embedded cluster.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asks import ask
from jupyter_client import KernelManager
from kernel_transport import ipc
from waits import has_ended, wait_until

from pathways_jupyter.local.cluster import LocalCluster
from pathways_jupyter.service import leases
from pathways_jupyter.session import registry
from tests.conftest import Cell, Machine, Notebook

pytestmark = pytest.mark.timeout(300)

DEADLINE = 90.0
SHORT_LEASE = 5.0
"""Seconds; a supervisor that has to wait for a processor renews it in time."""
A_LITTLE = 2.0
"""Seconds that the cluster's operator may take once a lease has expired, on a machine that does nothing else."""
CONNECTED = {"jobs": 1, "leases": 1, "pods": 1, "processes": 2, "sockets": 2, "files": 2}
"""Resources of a session: supervisor and proxy are processes, control and tunnel sockets, record and log files."""

# Minimal, because a traceback through JAX's own frames takes IPython longer to draw than all of the rest.
PRELUDE = """
%xmode Minimal
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import session as sessions
config = {config!r}
def connect():
    with sessions.attempt_connect(config) as connecting:
        for number, event in enumerate(connecting):
            if number == 0:
                print("session", connecting._link.session, flush=True)
            print(event.kind, event.data.get("stage"), event.data.get("state"), flush=True)
    return connecting.session
"""

# Once before it says so: JAX itself does not always get over an interrupt that hits it while it traces a function.
COMPUTE = """
import jax
compute = jax.jit(lambda x: x @ x)
x = compute(jnp.ones((64, 64)))
print("computing", float(x.sum()), flush=True)
while True:
    compute(x).block_until_ready()
"""

DELETE_THE_PROXY = """
from pathways_jupyter.session import clusters
from pathways_jupyter.kube import objects
pod = s.record.pod
clusters.ask(s.record, lambda client, namespace: objects.delete(client, objects.PODS, pod, namespace=namespace))
for event in s.follow():
    print(event.kind, flush=True)
"""

TIDY = """
if sessions.current() is not None:
    sessions.current().disconnect()
"""


class Kernel(Notebook):
    """A kernel, as a notebook has one."""

    def __init__(self) -> None:
        # As a Jupyter server names it, which is how a kernel learns its own id.
        directory = Path(os.environ["JUPYTER_RUNTIME_DIR"])
        connection = str(directory / f"kernel-{uuid.uuid4()}.json")
        manager = KernelManager(kernel_name="python3", connection_file=connection, **ipc(directory))
        super().__init__(Machine(directory, dict(os.environ)), manager)

    @property
    def pid(self) -> int:
        return self.manager.provisioner.process.pid

    @property
    def text(self) -> str:
        """All that it has printed."""
        return "".join(self.seen)

    @property
    def session(self) -> str:
        return self.text.split("session ", 1)[1].split()[0]

    def ok(self, code: str) -> None:
        """Run a cell that does not fail."""
        cell = self.run(code)
        assert cell.status == "ok", cell.shown

    def meanwhile(self, code: str, when: str, then: Callable[[], Any]) -> Cell:
        """Run a cell, and call `then` once it has printed `when`."""
        request = self.begin(code)
        self.finish(request, until=when)
        then()
        return self.finish(request)

    def interrupted(self, code: str, when: str) -> float:
        """Run a cell that is interrupted once it has printed `when`; the moment of that."""
        moments: list[float] = []

        def interrupt() -> None:
            moments.append(time.monotonic())
            self.manager.interrupt_kernel()

        assert self.meanwhile(code, when, interrupt).error == "KeyboardInterrupt"
        return moments[0]

    def dies_when(self, when: str, code: str) -> float:
        """Run a cell whose kernel is killed once it has printed `when`; the moment of that."""
        self.finish(self.begin(code), until=when)
        os.kill(self.pid, signal.SIGKILL)
        return time.monotonic()

    def with_config(self, **changes: Any) -> None:
        """Change the settings with which it connects."""
        self.ok(f"import dataclasses\nfrom math import inf\nconfig = dataclasses.replace(config, **{changes!r})")

    def connect_here(self) -> str:
        """Connect with these settings; return the session."""
        self.ok("s = connect()\nimport jax, jax.numpy as jnp\nprint(jnp.arange(8.0).sum())")
        assert "28.0" in self.text
        return self.session

    def tidies(self) -> bool:
        """Return whether it may be used again: it was neither killed nor restarted."""
        try:
            # One that was restarted may not accept connections yet.
            self.client.wait_for_ready(timeout=DEADLINE)
        except RuntimeError:
            return False
        return self.run(TIDY).status == "ok"

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
    made.seen.clear()
    made.ok(PRELUDE.format(config=config(2)))
    yield made
    if made.manager.has_kernel and made.manager.is_alive() and made.tidies():
        kernels.append(made)
    else:
        made.close()


def disconnect(kernel: Kernel, cluster: LocalCluster) -> float:
    moment = time.monotonic()
    kernel.ok("print(repr(s.disconnect()))\nassert jax.devices()[0].platform == 'cpu'")
    assert "left=''" in kernel.text
    return moment


def shutdown(kernel: Kernel, cluster: LocalCluster) -> float:
    moment = time.monotonic()
    kernel.manager.shutdown_kernel()
    return moment


def restart(kernel: Kernel, cluster: LocalCluster) -> float:
    moment = time.monotonic()
    kernel.manager.restart_kernel()
    return moment


def exit_from_a_cell(kernel: Kernel, cluster: LocalCluster) -> float:
    moment = time.monotonic()
    kernel.run("exit()")
    return moment


def sigterm(kernel: Kernel, cluster: LocalCluster) -> float:
    os.kill(kernel.pid, signal.SIGTERM)
    return time.monotonic()


def sigkill(kernel: Kernel, cluster: LocalCluster) -> float:
    os.kill(kernel.pid, signal.SIGKILL)
    return time.monotonic()


def sigkill_while_computing(kernel: Kernel, cluster: LocalCluster) -> float:
    return kernel.dies_when("computing", COMPUTE)


def interrupt_while_computing_then_disconnect(kernel: Kernel, cluster: LocalCluster) -> float:
    kernel.interrupted(COMPUTE, "computing")
    kernel.ok("assert s.state == 'connected', s.state\nassert jnp.ones(4).sum() == 4")
    return disconnect(kernel, cluster)


def sigkill_when_the_proxy_is_lost(kernel: Kernel, cluster: LocalCluster) -> float:
    return kernel.dies_when("proxy-lost", DELETE_THE_PROXY)


def sigterm_to_the_supervisor(kernel: Kernel, cluster: LocalCluster) -> float:
    os.kill(registry.read(kernel.session).pid, signal.SIGTERM)
    return time.monotonic()


def sigkill_to_the_supervisor(kernel: Kernel, cluster: LocalCluster) -> float:
    os.kill(registry.read(kernel.session).pid, signal.SIGKILL)
    moment = time.monotonic()
    closed = f"assert s._side.link.close(patience={DEADLINE})"
    kernel.ok(f"kinds = [event.kind for event in s.follow()]\nprint(kinds)\n{closed}")
    assert "supervisor-lost" in kernel.text
    return moment


def sigkill_to_the_supervisor_while_disconnecting(kernel: Kernel, cluster: LocalCluster) -> float:
    pid = registry.read(kernel.session).pid
    moment = time.monotonic()
    cell = kernel.meanwhile("print('now', flush=True)\ns.disconnect()", "now", lambda: _kill(pid))
    assert cell.status == "ok", cell.shown
    return moment


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def api_server_restarts_while_connected(kernel: Kernel, cluster: LocalCluster) -> float:
    cluster.restart_api()
    kernel.ok("for event in s.follow():\n    if event.kind == 'proxy-lost': break")
    moment = time.monotonic()
    kernel.manager.shutdown_kernel()
    return moment


def api_server_restarts_while_disconnecting(kernel: Kernel, cluster: LocalCluster) -> float:
    restarting = threading.Thread(target=cluster.restart_api)
    moment = time.monotonic()
    cell = kernel.meanwhile("print('now', flush=True)\ns.disconnect()", "now", restarting.start)
    restarting.join()
    assert cell.status == "ok", cell.shown
    return moment


@pytest.mark.parametrize(
    "end",
    [
        disconnect,
        shutdown,
        restart,
        # To the supervisor the kernel's ends with this mark are the same as others: none but shutdown and restart run
        # atexit. That a session outlives the end of its own proxy or API server is shown by other tests too.
        pytest.param(exit_from_a_cell, marks=pytest.mark.soak),
        pytest.param(sigterm, marks=pytest.mark.soak),
        sigkill,
        pytest.param(sigkill_while_computing, marks=pytest.mark.soak),
        pytest.param(sigkill_when_the_proxy_is_lost, marks=pytest.mark.soak),
        interrupt_while_computing_then_disconnect,
        pytest.param(sigterm_to_the_supervisor, marks=pytest.mark.soak),
        sigkill_to_the_supervisor,
        sigkill_to_the_supervisor_while_disconnecting,
        pytest.param(api_server_restarts_while_connected, marks=pytest.mark.soak),
        api_server_restarts_while_disconnecting,
    ],
)
def test_nothing_is_left_after(end, kernel, cluster, has, gone):
    session = kernel.connect_here()
    has(session, CONNECTED)
    moment = end(kernel, cluster)
    gone(session, since=moment)


def test_nothing_is_left_after_an_interrupt_while_connecting(kernel, hold, gone):
    hold(1)
    kernel.with_config(wait=math.inf)
    moment = kernel.interrupted("connect()", "waiting")
    gone(kernel.session, since=moment)
    kernel.ok("assert sessions.current() is None\nimport jax\nassert jax.devices()[0].platform == 'cpu'")


@pytest.mark.thorough
def test_nothing_is_left_when_the_kernel_is_killed_while_connecting(kernel, hold, gone):
    hold(1)
    kernel.with_config(wait=math.inf)
    moment = kernel.dies_when("waiting", "connect()")
    gone(kernel.session, since=moment)


@pytest.mark.thorough
def test_nothing_is_left_when_the_api_server_restarts_while_connecting(kernel, cluster, gone):
    restarting = threading.Thread(target=cluster.restart_api)
    kernel.meanwhile("s = connect()", "create", restarting.start)
    restarting.join()
    moment = time.monotonic()
    kernel.manager.shutdown_kernel()
    gone(kernel.session, since=moment)


def die_together(kernel: Kernel, session: str) -> tuple[float, registry.SessionRecord]:
    """Kill kernel and supervisor, as if their machine had died and its files were another's; return when."""
    record = registry.read(session)
    for pid in (kernel.pid, record.pid):
        os.kill(pid, signal.SIGKILL)
    moment = time.monotonic()
    wait_until(lambda: has_ended(kernel.pid) and has_ended(record.pid), DEADLINE)
    registry.remove(record)
    return moment, record


@pytest.mark.thorough
def test_when_kernel_and_supervisor_die_together_the_lease_ends_the_proxy(kernel, has, gone):
    """No process of the session is left to clean up: the cluster's operator does, once the lease has expired."""
    kernel.with_config(lease_seconds=SHORT_LEASE)
    session = kernel.connect_here()
    has(session, CONNECTED)
    moment, _ = die_together(kernel, session)
    gone(session, since=moment)


WITH_A_RELAY = {**CONNECTED, "processes": 3}


@pytest.mark.thorough
def test_nothing_is_left_of_a_session_with_a_relay_whose_kernel_is_killed(kernel, cluster, has, gone):
    kernel.with_config(relay=True)
    session = kernel.connect_here()
    has(session, WITH_A_RELAY)
    gone(session, since=sigkill(kernel, cluster))


@pytest.mark.soak
def test_with_a_relay_the_proxy_of_a_dead_machine_is_kept_for_a_while_and_then_gone(kernel, has, counted, gone):
    kernel.with_config(relay=True, lease_seconds=SHORT_LEASE, keep=3 * SHORT_LEASE)
    session = kernel.connect_here()
    has(session, WITH_A_RELAY)
    moment, _ = die_together(kernel, session)
    time.sleep(max(0.0, moment + 2 * SHORT_LEASE - time.monotonic()))
    assert counted(session)["jobs"] == 1
    gone(session, since=moment, seconds=3 * SHORT_LEASE + A_LITTLE)


@pytest.mark.soak
def test_with_a_relay_the_proxy_of_a_dead_machine_ends_also_without_an_operator(kernel, cluster, has, counted, gone):
    """The test renews the Lease in place of the dead, so that the cluster's operator has nothing to do."""
    kernel.with_config(relay=True, keep=5.0)
    session = kernel.connect_here()
    has(session, WITH_A_RELAY)
    _, record = die_together(kernel, session)
    deadline = time.monotonic() + DEADLINE
    while counted(session)["processes"]:
        assert time.monotonic() < deadline
        assert ask(cluster.kubeconfig, leases.renew, record.job, namespace="default")
        time.sleep(0.5)
    gone(session, seconds=DEADLINE)


@pytest.mark.thorough
def test_a_restarted_kernel_takes_over_what_lingers_and_nothing_is_left_after(kernel, config, gone):
    lingering = PRELUDE.format(config=config(2, linger=DEADLINE))
    kernel.ok(lingering)
    session = kernel.connect_here()
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=DEADLINE)
    kernel.seen.clear()
    kernel.ok(lingering)
    assert kernel.connect_here() == session
    gone(session, since=disconnect(kernel, None))


def test_nothing_is_left_when_a_lingering_session_is_not_taken_over(kernel, config, gone):
    kernel.ok(PRELUDE.format(config=config(2, linger=0.5)))
    session = kernel.connect_here()
    os.kill(kernel.pid, signal.SIGKILL)
    gone(session)
