from __future__ import annotations

import pytest
from make_schemas import make

from pathways_jupyter.local.apiserver.printing import duration, first_value, pod_ready, pod_restarts, pod_status
from pathways_jupyter.local.apiserver.resources import BUILTIN
from pathways_jupyter.service.builtin_kinds import kinds


def pod(phase: str, *containers, initial=(), sidecars=(), deleted: bool = False, reason: str = ""):
    def status(number: int, state, **more):
        return {"name": f"c{number}", "state": state, "ready": "running" in state, "restartCount": number, **more}

    return {
        "metadata": {"name": "p", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})},
        "spec": {
            "containers": [{"name": f"c{number}"} for number in range(len(containers))],
            "initContainers": [
                {"name": f"c{number}", **({"restartPolicy": "Always"} if number in sidecars else {})}
                for number in range(len(initial))
            ],
        },
        "status": {
            "phase": phase,
            **({"reason": reason} if reason else {}),
            "containerStatuses": [status(number, state) for number, state in enumerate(containers)],
            "initContainerStatuses": [
                status(number, state, started="running" in state) for number, state in enumerate(initial)
            ],
        },
    }


RUNNING = {"running": {}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}


@pytest.mark.parametrize(
    ("shown", "word", "ready"),
    [
        (pod("Pending"), "Pending", "0/0"),
        (pod("Running", RUNNING, RUNNING), "Running", "2/2"),
        (pod("Pending", {"waiting": {"reason": "ContainerCreating"}}), "ContainerCreating", "0/1"),
        (pod("Pending", {"waiting": {"reason": "ImagePullBackOff"}}), "ImagePullBackOff", "0/1"),
        (pod("Running", {"waiting": {"reason": "CrashLoopBackOff"}}), "CrashLoopBackOff", "0/1"),
        (pod("Failed", {"terminated": {"exitCode": 1, "reason": "Error"}}), "Error", "0/1"),
        (pod("Succeeded", DONE), "Completed", "0/1"),
        (pod("Running", RUNNING, deleted=True), "Terminating", "1/1"),
        (pod("Failed", reason="Evicted"), "Evicted", "0/0"),
        (pod("Pending", initial=[DONE, {"waiting": {"reason": "PodInitializing"}}]), "Init:1/2", "0/0"),
        (pod("Pending", initial=[{"waiting": {"reason": "ErrImagePull"}}]), "Init:ErrImagePull", "0/0"),
        (pod("Running", RUNNING, initial=[RUNNING], sidecars={0}), "Running", "2/2"),
    ],
)
def test_a_pod_is_shown_with_its_most_specific_status(shown, word: str, ready: str) -> None:
    assert (pod_status(shown), pod_ready(shown)) == (word, ready)


def test_restarts_are_counted_over_all_containers() -> None:
    assert pod_restarts(pod("Running", RUNNING, RUNNING, RUNNING)) == "3"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (3599, "59m"),
        (11_000, "3h3m"),
        (90_000, "25h"),
        (200_000, "2d7h"),
        (1_000_000, "11d"),
    ],
)
def test_ages_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".a.b", 1),
        (".a.c", None),
        (".l[0].x", "y"),
        (".l[7].x", None),
        ('.l[?(@.x=="z")].n', 2),
        (".l[*].x", None),
        (".l[?(@.x > 3)]", None),
    ],
)
def test_printer_columns_find_what_their_paths_say(path: str, value) -> None:
    obj = {"a": {"b": 1}, "l": [{"x": "y"}, {"x": "z", "n": 2}]}

    assert first_value(path, obj) == value


def test_the_field_tables_agree_with_the_official_clients_models() -> None:
    known, official = kinds(), make()

    # Of Kueue's own API server it has one list.
    assert {each.kind for each in BUILTIN if not each.group.endswith("kueue.x-k8s.io")} <= set(known)
    differing = [
        (kind, field, value, official[kind][field])
        for kind in known
        for field, value in known[kind].items()
        if kind in official and field in official[kind] and official[kind][field] != value
    ]
    assert differing == []
