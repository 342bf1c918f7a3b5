"""The embedded cluster ends under living sessions: nothing waits for it, and no file stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import holders
import pytest

from pathways_jupyter.actions import doctor
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError, LocalClusterError
from pathways_jupyter.base.events import EventKind, SessionState
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.elastic import fault_targets, faults
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.watch import watch
from pathways_jupyter.local import cluster as local
from pathways_jupyter.session import clusters, registry
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.protocol import Method

DEADLINE = 60.0
TYPE = "tpuv6e:2x2"


def connect(cluster: local.LocalCluster) -> SupervisorLink:
    link, _ = holders.start(ConnectConfig(instances={TYPE: 1}, kubeconfig=str(cluster.kubeconfig), local=True))
    return link


def killed(cluster: local.LocalCluster) -> None:
    os.kill(cluster.pid, signal.SIGKILL)


def ended(cluster: local.LocalCluster) -> None:
    assert local.down(cluster.name)


def replaced(cluster: local.LocalCluster) -> None:
    assert local.down(cluster.name)
    local.up({TYPE: 1}, name=cluster.name)


@pytest.mark.thorough
@pytest.mark.parametrize("end", [ended, killed, replaced])
def test_a_session_of_a_cluster_that_has_ended_ends_with_its_kernel_and_leaves_nothing(
    own_cluster, end: Callable[[local.LocalCluster], None], nothing_left
):
    link = connect(own_cluster)
    assert registry.read(link.session) is not None
    end(own_cluster)
    link.close()
    nothing_left(link.session)


@pytest.mark.thorough
@pytest.mark.parametrize(("end", "said"), [(ended, ""), (killed, "The embedded cluster of this machine has ended.")])
def test_a_session_is_lost_with_its_cluster_and_ends_with_its_kernel(own_cluster, end, said, nothing_left):
    """One that has no connection at that moment finds out why too."""
    link, events = connect(own_cluster), []
    end(own_cluster)
    for event in link.watch():
        events.append(event)
        if event.data.get("state") == SessionState.LOST:
            break
    (lost,) = (event.message for event in events if event.kind is EventKind.PROXY_LOST)
    assert said in lost
    link.close()
    nothing_left(link.session)


def test_disconnecting_while_it_is_gone_says_that_nothing_is_left(own_cluster, nothing_left):
    link = connect(own_cluster)
    ended(own_cluster)
    assert link.answer(link.ask(Method.DISCONNECT), patience=DEADLINE) == {"left": ""}
    link.close()
    nothing_left(link.session)


@pytest.mark.thorough
def test_what_a_dead_supervisor_left_of_a_cluster_that_has_ended_is_swept(own_cluster, nothing_left):
    link = connect(own_cluster)
    record = registry.read(link.session)
    ended(own_cluster)
    os.kill(record.pid, signal.SIGKILL)
    # Its kernel has it swept by another process.
    assert link.close(patience=DEADLINE)
    nothing_left(link.session)


def list_pods(where: ConnectConfig) -> object:
    return clusters.ask(where, lambda client, namespace: objects.list_(client, objects.PODS, namespace=namespace))


def stream_changes(where: ConnectConfig) -> object:
    with clusters.stream(where, lambda client, name: watch(client, objects.PODS, namespace=name)) as changes:
        return list(changes)


def heal(where: ConnectConfig) -> object:
    return faults.heal(fault_targets.FaultTarget(where, "pathways-cluster"))


@pytest.fixture(scope="module", params=[ended, killed])
def over(request, runtime) -> Iterator[ConnectConfig]:
    """A cluster that could be read from, and has ended since."""
    cluster = local.up({TYPE: 1}, name=f"t{uuid.uuid4().hex[:6]}")
    where = ConnectConfig(kubeconfig=str(cluster.kubeconfig), local=True)
    list_pods(where)
    request.param(cluster)
    yield where
    local.down(cluster.name)


@pytest.mark.parametrize("reader", [list_pods, stream_changes, heal])
def test_a_reader_says_that_the_embedded_cluster_has_ended_and_how_to_start_it(over, reader):
    with pytest.raises(LocalClusterError, match="The embedded cluster of this machine has ended") as raised:
        reader(over)
    assert "pathways-jupyter local up" in raised.value.hint
    (failure,) = (each for each in doctor.examine(over) if each.level is Tone.FAIL)
    assert (failure.message, failure.hint) == (str(raised.value), raised.value.hint)


def test_an_error_of_an_embedded_cluster_that_runs_is_not_explained_by_its_end(cluster):
    where = ConnectConfig(kubeconfig=str(cluster.kubeconfig), local=True)
    with pytest.raises(ApiError, match="not found"):
        clusters.ask(where, lambda client, namespace: objects.get(client, objects.PODS, "none", namespace=namespace))


@pytest.mark.parametrize("command", [["clean"], ["slices"], ["doctor"]])
def test_looking_at_the_embedded_cluster_starts_none(command, tmp_path):
    environ = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    asked = [sys.executable, "-m", "pathways_jupyter", *command, "--local"]
    said = subprocess.run(asked, env=environ, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert "not running" in said.stdout + said.stderr
    assert "pathways-jupyter local up" in said.stdout + said.stderr or command == ["clean"]
    assert said.returncode == (0 if command == ["clean"] else 1)
    status = [sys.executable, "-m", "pathways_jupyter", "local", "status", "--json"]
    there = subprocess.run(status, env=environ, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert not json.loads(there.stdout or "null"), there
