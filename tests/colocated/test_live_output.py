from __future__ import annotations

import pytest

from pathways_jupyter.colocated.live_output import pod_of
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
