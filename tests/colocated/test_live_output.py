from __future__ import annotations

import json
import threading

import pytest
import yaml

import pathways_jupyter
from pathways_jupyter.colocated import cell_run
from pathways_jupyter.colocated.live_output import LogFollower, pod_of
from pathways_jupyter.colocated.memory import Facts
from pathways_jupyter.service import names


def pod(name: str, *, ip: str = "", node: str = "", sidecar: bool = True, kind: str = "initContainers") -> dict:
    container = {"name": names.SIDECAR_CONTAINER if sidecar else "main"}
    return {"metadata": {"name": name}, "spec": {kind: [container], "nodeName": node}, "status": {"podIP": ip}}


def facts(hostname: str = "", pod_ip: str = "") -> Facts:
    return Facts("python", False, {}, 1, hostname, pod_ip, "", frozenset(), "")


PODS = [
    pod("w-other", ip="10.0.0.3", node="n1", sidecar=False),
    pod("w-0", ip="10.0.0.1", node="n0"),
    pod("w-1", ip="10.0.0.2", node="n1", kind="containers"),
    {"metadata": {"name": "pending"}},
]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (facts(hostname="w-0"), "w-0"),
        (facts(hostname="somewhere", pod_ip="10.0.0.2"), "w-1"),
        (facts(hostname="n1"), "w-1"),
        (facts(hostname="w-other", pod_ip="10.0.0.3"), ""),
        (facts(hostname="elsewhere"), ""),
    ],
    ids=["its name", "its address", "its node", "a pod without a sidecar", "none"],
)
def test_a_hosts_pod_is_found_by_what_the_host_says_of_itself(of, expected) -> None:
    assert pod_of(of, PODS) == expected


@pytest.mark.thorough
def test_the_logs_of_a_call_are_those_of_its_sessions_cluster_after_another_context_became_current(
    local_cluster, in_runtime, tmp_path, monkeypatch
) -> None:
    mine, go, shown = tmp_path / "config", tmp_path / "go", []
    content = yaml.safe_load(local_cluster.kubeconfig.read_text())
    mine.write_text(json.dumps({**content, "current-context": local_cluster.context}))
    monkeypatch.setenv("KUBECONFIG", str(mine))
    source = f"import os, time\nprint('early')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"

    def show(stream: str, line: str) -> None:
        shown.append(line)
        go.touch()

    with in_runtime(), pathways_jupyter.connect(tpu={"tpuv6e:2x4": 1}, wait=60):
        mine.write_text(json.dumps({**content, "current-context": "elsewhere"}))
        # So that the cell ends also where nothing is shown.
        end = threading.Timer(60, go.touch)
        end.start()
        assert cell_run.run_cell(source, once=True, follow=LogFollower(show).start).error() is None
        end.cancel()
    assert shown == ["[host 0] early\n"]
