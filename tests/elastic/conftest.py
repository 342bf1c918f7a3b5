"""One process, connected to three slices of an embedded cluster, and the means to break them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import uuid
from collections.abc import Callable, Iterator

import homes
import pytest
from waits import wait_until

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.events import Event, EventKind, SessionState
from pathways_jupyter.elastic import faults
from pathways_jupyter.kube import objects
from pathways_jupyter.local import cluster as local
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel import session as sessions
from pathways_jupyter.session.kernel.session import Session

DEADLINE = 60.0
TYPE = "tpuv6e:2x2"


@pytest.fixture(scope="session")
def at_home(tmp_path_factory) -> Callable[[], contextlib.AbstractContextManager[object]]:
    """Enters, for a while, the directories that these files share."""
    return functools.partial(homes.entered, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module", autouse=True)
def runtime(at_home) -> Iterator[None]:
    """Directories of the tests' own, for one file, so that other tests get theirs back."""
    with at_home():
        yield


@pytest.fixture(scope="session")
def cluster(at_home) -> Iterator[local.LocalCluster]:
    """The cluster that these files share, as far as one process runs them."""
    name = f"e{uuid.uuid4().hex[:6]}"
    with at_home():
        made = local.up({TYPE: 3}, name=name, fast_heal=True)
    yield made
    with at_home():
        local.down(name)


@pytest.fixture(scope="session")
def connect(cluster) -> Callable[[], Session]:
    """Connect to all slices."""
    config = ConnectConfig(instances={TYPE: 3}, kubeconfig=str(cluster.kubeconfig), wait=DEADLINE)
    return lambda: sessions.connect(config)


@pytest.fixture(scope="module")
def shared(connect) -> Iterator[Session]:
    with connect() as made:
        yield made


@pytest.fixture
def session(shared) -> Session:
    """The session of all tests of a file, on three slices that are up."""
    if shared.state is SessionState.LOST:
        shared.reconnect()
    wait_until(lambda: shared.state is SessionState.CONNECTED, DEADLINE)
    return shared


@pytest.fixture
def lose(session) -> Callable[[str], None]:
    """Delete pods whose name has `part`, without grace."""

    def lost(part: str) -> None:
        async def delete(client, namespace):
            for pod in (await objects.list_(client, objects.PODS, namespace=namespace)).items:
                name = pod["metadata"]["name"]
                if part in name:
                    await objects.delete(client, objects.PODS, name, namespace=namespace, grace_seconds=0)

        clusters.ask(session.record, delete)

    return lost


@pytest.fixture
def take_down(session) -> Iterator[Callable[..., faults.Fault]]:
    """Take a slice down by JAX's index of it, if wanted until that is reported; it is up again before the next test."""
    taken: list[tuple[int, int]] = []

    def down(index: int, seconds: float = 0.0, *, reported: bool = False) -> faults.Fault:
        since = session.event_count
        taken.append((since, index))
        (number,) = [each.number for each in session.record.slices if each.index == index]
        fault = faults.slice_down(session, number, seconds=seconds)
        if reported:
            # The steps that are left of a short run can take less time than the end of a worker.
            next(event for event in session.follow(since) if _is_loss_of(index, event))
        return fault

    yield down
    faults.heal(session)
    for since, index in taken:
        # Reported by now: the next test must not take it for a loss of its own.
        healed = (
            event.kind is EventKind.SLICE_HEALED for event in session.follow(since) if event.data.get("slice") == index
        )
        assert any(healed)


@pytest.fixture
def take_down_and_up(session, take_down) -> Callable[[int], None]:
    """Take a slice down by JAX's index of it, and return when it is up again."""

    def down_and_up(index: int) -> None:
        since = session.event_count
        take_down(index)
        kinds = (event.kind for event in session.follow(since) if event.data.get("slice") == index)
        assert list(itertools.islice(kinds, 2)) == [EventKind.SLICE_DOWN, EventKind.SLICE_HEALED]

    return down_and_up


def _is_loss_of(index: int, event: Event) -> bool:
    return event.kind is EventKind.SLICE_DOWN and event.data.get("slice") == index
