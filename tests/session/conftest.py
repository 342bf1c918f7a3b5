"""Sessions against the embedded cluster, and what may be left of one: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import holders
import homes
import kubeconfigs
import psutil
import pytest
from asks import ask
from waits import wait_until

from pathways_jupyter.base.config import ConnectConfig, runtime_dir
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, Object, list_
from pathways_jupyter.kube.watch import until_gone
from pathways_jupyter.local import cluster as local
from pathways_jupyter.service.names import SESSION_LABEL
from pathways_jupyter.session.kernel import session
from pathways_jupyter.session.kernel.session import Session
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink

DEADLINE = 60.0
LEAK_SECONDS = 60.0
"""However a session ends, nothing of it is left after this; `make soak` measures how soon that is."""
TYPE = "tpuv6e:2x2"


@pytest.fixture(scope="session", autouse=True)
def runtime(tmp_path_factory) -> Iterator[Path]:
    """Directories of the tests' own, for every process that they start."""
    with homes.entered(tmp_path_factory.mktemp("home")) as directory:
        yield directory


@pytest.fixture(scope="session")
def cluster(runtime) -> Iterator[local.LocalCluster]:
    """The embedded cluster with two slices of four chips."""
    name = f"t{uuid.uuid4().hex[:6]}"
    yield local.up({TYPE: 2}, name=name, fast_heal=True)
    # A file whose directories were those of this process when it began may end after those of this fixture.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(runtime.parent))
        assert local.down(name)


@pytest.fixture
def own_cluster(runtime) -> Iterator[local.LocalCluster]:
    """An embedded cluster with one slice, which may be spoilt, or ended."""
    name = f"t{uuid.uuid4().hex[:6]}"
    yield local.up({TYPE: 1}, name=name)
    local.down(name)


@pytest.fixture(autouse=True)
def no_session_stays() -> Iterator[None]:
    """One failed test must not fail all that follow."""
    yield
    if (made := session.current()) is not None:
        made.disconnect()


@pytest.fixture
def config(cluster) -> Callable[..., ConnectConfig]:
    """Make the settings of a connection to the cluster."""

    def make(slices: int = 2, **changes: Any) -> ConnectConfig:
        given = {"instances": {TYPE: slices}, "kubeconfig": str(cluster.kubeconfig), **changes}
        return ConnectConfig(**given)

    return make


@pytest.fixture
def connected(config) -> Iterator[Session]:
    """This process, connected to both slices."""
    with session.connect(config()) as made:
        yield made


@pytest.fixture
def hold(config) -> Iterator[Callable[..., SupervisorLink]]:
    """Hold slices for as long as the test runs, as a kernel that is another process would."""
    links = []

    def take(slices: int, **changes: Any) -> SupervisorLink:
        link, _ = holders.start(config(slices, **changes), notebook="work/holder.ipynb")
        links.append(link)
        return link

    yield take
    for link in links:
        assert link.close(patience=DEADLINE)


@pytest.fixture
def counted(cluster, runtime) -> Callable[[str], dict[str, int]]:
    """Counts what a session has, in the cluster and on this machine, by kind; it remembers the pods that it saw."""
    pods: dict[str, set[str]] = {}

    def count(session: str) -> dict[str, int]:
        in_cluster = ask(cluster.kubeconfig, _in_cluster, session)
        known = pods.setdefault(session, set())
        known.update(pod["metadata"]["uid"] for pod in in_cluster["pods"])
        return {
            **{kind: len(items) for kind, items in in_cluster.items()},
            "processes": _families(_processes_of(session, known)),
            "sockets": len(_sockets_of(session)),
            "files": len([path for path in runtime.iterdir() if session in path.name and not path.is_socket()]),
        }

    return count


@pytest.fixture
def has(counted) -> Callable[[str, dict[str, int]], None]:
    """Check what a session has; for a moment it may have more, such as the record that replaces the one before."""

    def check(session: str, expected: dict[str, int]) -> None:
        with contextlib.suppress(AssertionError):
            wait_until(lambda: counted(session) == expected, 10)
        assert counted(session) == expected

    return check


@pytest.fixture
def nothing_left(runtime) -> Callable[..., None]:
    """Wait until a session has neither processes nor files on this machine."""

    def wait(session: str, *, deadline: float = 0.0) -> None:
        deadline = deadline or time.monotonic() + LEAK_SECONDS

        left: list[object] = []

        def is_gone() -> bool:
            processes = _processes_of(session)
            for process in processes:
                assert _ends(process, deadline), process
            # A process that has only just been started has no command line for a moment, but its log is there.
            left[:] = [*processes, *(path for path in runtime.iterdir() if session in path.name)]
            return not left

        try:
            wait_until(is_gone, deadline - time.monotonic())
        except AssertionError as error:
            raise AssertionError(f"{left} of session {session} are left.") from error

    return wait


@pytest.fixture
def gone(cluster, counted, nothing_left) -> Callable[..., None]:
    """Wait until nothing of a session is left anywhere.

    Within `seconds` after the moment `since`, which is now when left out.
    """

    def wait(session: str, *, since: float | None = None, seconds: float = LEAK_SECONDS) -> None:
        began = time.monotonic() if since is None else since
        ask(cluster.kubeconfig, _until_gone, session, began + seconds)
        nothing_left(session, deadline=began + seconds)
        took = time.monotonic() - began
        left = {kind: number for kind, number in counted(session).items() if number}
        assert not left
        print(f"all of session {session} was gone after {took:.2f} s")
        assert took <= seconds

    return wait


@pytest.fixture
def unreachable(tmp_path) -> str:
    """A kubeconfig whose server does not listen."""
    return kubeconfigs.write(tmp_path / "unreachable", {"server": "https://127.0.0.1:1"}, {"token": "t"})


def _processes_of(session: str, pods: Collection[str] = ()) -> list[psutil.Process]:
    """Every process whose command line names a session, or that runs in the place of one of `pods`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if session in process.cmdline() or any(uid in process.cwd() for uid in pods):
                found.append(process)
    return found


def _families(processes: Collection[psutil.Process]) -> int:
    """Return how many of these processes have no parent among them: a sidecar counts once for all its proxies."""
    known, parents = {each.pid for each in processes}, []
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            parents.append(each.ppid())
    return sum(parent not in known for parent in parents)


def _ends(process: psutil.Process, deadline: float) -> bool:
    """Wait for any process to end; a zombie counts as ended."""
    if not hasattr(os, "pidfd_open"):
        return not psutil.wait_procs([process], timeout=deadline - time.monotonic())[1]
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0])
    finally:
        os.close(descriptor)


def _sockets_of(session: str) -> set[str]:
    """Unix sockets named after a session: those that a process has, and those that are files."""
    held = {each.laddr for each in psutil.net_connections("unix") if session in each.laddr}
    directories = [runtime_dir(), *Path(tempfile.gettempdir()).glob("pathways-*")]
    files = {str(path) for directory in directories if directory.is_dir() for path in directory.glob(f"{session}.*")}
    return held | {path for path in files if Path(path).is_socket()}


async def _until_gone(client: Client, session: str, deadline: float) -> None:
    async with asyncio.timeout(deadline - time.monotonic()):
        for resource in (JOBS, LEASES, PODS):
            await until_gone(client, resource, namespace="default", labels=f"{SESSION_LABEL}={session}")


async def _in_cluster(client: Client, session: str) -> dict[str, list[Object]]:
    selector = f"{SESSION_LABEL}={session}"
    return {
        resource.plural: (await list_(client, resource, namespace="default", labels=selector)).items
        for resource in (JOBS, LEASES, PODS)
    }
