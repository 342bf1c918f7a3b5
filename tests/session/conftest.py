"""Sessions against the embedded cluster, and what may be left of one: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pathways_jupyter.config import ConnectConfig, runtime_dir
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, list_
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.local import cluster as local
from pathways_jupyter.service.names import SESSION_LABEL
from pathways_jupyter.session import protocol, session, spawn
from pathways_jupyter.session.link import Link
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.session import Session

DEADLINE = 60.0
TYPE = "tpuv6e:2x2"


@pytest.fixture(scope="session", autouse=True)
def runtime(tmp_path_factory) -> Iterator[Path]:
    """Directories of the tests' own, for every process that they start."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(home / "rt"))
        patch.setenv("JUPYTER_CONFIG_DIR", str(home / "config"))
        patch.setenv("IPYTHONDIR", str(home / "ipython"))
        patch.setenv("HOME", str(home))
        patch.delenv("KUBECONFIG", raising=False)
        yield runtime_dir()


@pytest.fixture(scope="session")
def cluster(runtime) -> Iterator[local.Cluster]:
    """The embedded cluster with two slices of four chips."""
    name = f"t{uuid.uuid4().hex[:6]}"
    yield local.up({TYPE: 2}, name=name)
    local.down(name)


@pytest.fixture(autouse=True)
def no_session_stays() -> Iterator[None]:
    """One failed test must not fail all that follow."""
    yield
    if (made := session.current()) is not None:
        made.disconnect()


@pytest.fixture
def config(cluster) -> Callable[..., ConnectConfig]:
    """Makes the settings of a connection to the cluster."""

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
def hold(config) -> Iterator[Callable[..., Link]]:
    """Holds slices for as long as the test runs, as a kernel that is another process would."""
    links = []

    def take(slices: int, **changes: Any) -> Link:
        link = spawn.supervisor()
        links.append(link)
        asked = {"config": protocol.config_to_json(config(slices, **changes)), "kernel_pid": os.getpid()}
        link.answer(link.ask(Method.START, **asked, notebook="work/holder.ipynb"), patience=DEADLINE)
        return link

    yield take
    for link in links:
        assert link.close(patience=DEADLINE)


@pytest.fixture
def processes_of() -> Callable[[str], list[psutil.Process]]:
    """Gives every process whose command line names a session."""
    return _processes_of


@pytest.fixture
def nothing_left(runtime) -> Callable[[str], None]:
    """Waits until a session has neither processes nor files on this machine."""

    def wait(session: str) -> None:
        while processes := _processes_of(session):
            _, alive = psutil.wait_procs(processes, timeout=DEADLINE)
            assert not alive
        assert [path.name for path in runtime.iterdir() if session in path.name] == []

    return wait


@pytest.fixture
def nothing_in_cluster(cluster) -> Callable[[str], None]:
    """Waits until a session has no Job, no pod and no Lease."""

    def wait(session: str) -> None:
        asyncio.run(_gone(cluster, session))

    return wait


@pytest.fixture
def gone(nothing_left, nothing_in_cluster) -> Callable[[str], None]:
    """Waits until nothing of a session is left anywhere."""

    def wait(session: str) -> None:
        nothing_left(session)
        nothing_in_cluster(session)

    return wait


@pytest.fixture
def made_by(cluster) -> Callable[[str], dict[str, int]]:
    """Counts what a session has in the cluster, by kind."""

    def count(session: str) -> dict[str, int]:
        return asyncio.run(_count(cluster, session))

    return count


@pytest.fixture
def unreachable(tmp_path) -> Path:
    """A kubeconfig whose server nobody listens at."""
    path = tmp_path / "unreachable.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
        "clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: x, user: {token: t}}]\n"
    )
    return path


def _processes_of(session: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if session in process.cmdline() and process.pid != os.getpid():
                found.append(process)
    return found


async def _gone(cluster: local.Cluster, session: str) -> None:
    async with Client(load(str(cluster.kubeconfig))) as client, asyncio.timeout(DEADLINE):
        for resource in (JOBS, LEASES, PODS):
            left: set[str] = set()
            changes = watch(client, resource, namespace="default", labels=f"{SESSION_LABEL}={session}")
            async with contextlib.aclosing(changes):
                async for change in changes:
                    if change.type in {ChangeType.ADDED, ChangeType.MODIFIED}:
                        left.add(change.object["metadata"]["name"])
                    elif change.type is ChangeType.DELETED:
                        left.discard(change.object["metadata"]["name"])
                    if not left and change.type in {ChangeType.SYNCED, ChangeType.DELETED}:
                        break


async def _count(cluster: local.Cluster, session: str) -> dict[str, int]:
    async with Client(load(str(cluster.kubeconfig))) as client:
        selector = f"{SESSION_LABEL}={session}"
        return {
            resource.plural: len((await list_(client, resource, namespace="default", labels=selector)).items)
            for resource in (JOBS, LEASES, PODS)
        }
