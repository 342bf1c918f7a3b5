"""One process, connected to three slices of an embedded cluster, and the means to break them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest

from pathways_jupyter.base.config import ConnectConfig, runtime_dir
from pathways_jupyter.elastic import faults
from pathways_jupyter.local import cluster as local
from pathways_jupyter.session.kernel import session as sessions
from pathways_jupyter.session.kernel.session import Session

DEADLINE = 60.0
TYPE = "tpuv6e:2x2"


@pytest.fixture(scope="session")
def at_home(tmp_path_factory) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Enters, for a while, the directories that these files share."""
    home = tmp_path_factory.mktemp("home")

    @contextlib.contextmanager
    def entered() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JUPYTER_RUNTIME_DIR", str(home / "rt"))
            patch.setenv("JUPYTER_CONFIG_DIR", str(home / "config"))
            patch.setenv("HOME", str(home))
            patch.delenv("KUBECONFIG", raising=False)
            runtime_dir()
            yield

    return entered


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


@pytest.fixture
def session(cluster) -> Iterator[Session]:
    config = ConnectConfig(instances={TYPE: 3}, kubeconfig=str(cluster.kubeconfig), wait=DEADLINE)
    with sessions.connect(config) as made:
        yield made


@pytest.fixture(scope="module")
def steady(cluster) -> Iterator[Session]:
    """A session for all tests of a file that lose nothing."""
    config = ConnectConfig(instances={TYPE: 3}, kubeconfig=str(cluster.kubeconfig), wait=DEADLINE)
    with sessions.connect(config) as made:
        yield made


@pytest.fixture
def take_down(session) -> Callable[..., faults.Fault]:
    """Take a slice down by JAX's index of it."""

    def down(index: int, seconds: float = 0.0) -> faults.Fault:
        (number,) = [each.number for each in session.record.slices if each.index == index]
        return faults.slice_down(session, number, seconds=seconds)

    return down
