"""From connect to the first JAX result, by stage, beside pathwaysutils on the same cluster in the same run."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pathways_jupyter.bench import peer
from pathways_jupyter.bench.measure import Row, Table, in_process, median
from pathways_jupyter.events import EventKind, Stage

_ROUNDS = 5
_OURS = "pathways_jupyter.bench.connect"


def run(kubeconfig: str, context: str) -> list[Table]:
    """Connects with both in turn, each time in a fresh process that has imported JAX already."""
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        environ = {**os.environ, "KUBECONFIG": str(_renamed(kubeconfig, Path(directory) / "kubeconfig"))}
        for _ in range(_ROUNDS):
            ours.append(in_process(_OURS, kubeconfig, context))
            theirs.append(in_process("pathways_jupyter.bench.peer", environ=environ))
    return [_table(_medians(ours), _medians(theirs))]


def main(arguments: list[str]) -> int:
    """One connection of ours, timed by stage; prints one line of JSON."""
    import jax

    import pathways_jupyter

    kubeconfig, context = arguments
    began, began_at = time.perf_counter(), time.time()
    session = pathways_jupyter.connect(
        kubeconfig=kubeconfig,
        context=context,
        pathways_service=peer.SERVICE,
        expected_tpu_instances={"tpuv6e:2x2": 2},
        wait=60,
    )
    connected = time.perf_counter()
    if int(jax.numpy.arange(8).sum()) != 28:
        raise RuntimeError("The sum came back wrong.")
    computed = time.perf_counter()
    stages = _stages(session, began_at, began_at + connected - began)
    session.disconnect()
    ended = time.perf_counter()
    taken = {"connect": connected - began, "result": computed - began, "disconnect": ended - computed}
    print(json.dumps({**taken, **stages}))
    return 0


def _stages(session: Any, began: float, ended: float) -> dict[str, float]:
    """Seconds per stage: each ends where the next begins."""
    starts = [(event.data["stage"], event.at) for event in session.events() if event.kind is EventKind.STAGE]
    ends = [*(at for _, at in starts[1:]), ended]
    return {stage: end - start for (stage, start), end in zip(starts, ends, strict=True)} | {
        "before": starts[0][1] - began
    }


def _table(ours: dict[str, float], theirs: dict[str, float]) -> Table:
    rows = [
        Row("connect, in all", {"ours": 1e3 * ours["connect"], "isc_pathways.connect": 1e3 * theirs["connect"]}),
        *(
            Row(f"of which {stage}", {"ours": 1e3 * ours[stage], "isc_pathways.connect": None})
            for stage in ("before", *Stage)
            if stage in ours
        ),
        Row("until the first result", {"ours": 1e3 * ours["result"], "isc_pathways.connect": 1e3 * theirs["result"]}),
        Row("disconnect", {"ours": 1e3 * ours["disconnect"], "isc_pathways.connect": 1e3 * theirs["disconnect"]}),
    ]
    pod = ours.get(Stage.START, 0.0)
    return Table(
        "Connect",
        "ms",
        rows,
        goal="beyond the proxy pod's own start <= 300 ms; the pod's own start <= 1,000 ms",
        verdict=f"beyond the start {1e3 * (ours['connect'] - pod):.0f} ms, the pod's own start {1e3 * pod:.0f} ms",
        notes=[
            "Warm cluster, JAX imported before, a fresh process each time, medians of interleaved rounds.",
            "pathwaysutils tells no stages; it returns before the slices are placed.",
        ],
    )


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: median([each[name] for each in runs]) for name in runs[0]}


def _renamed(kubeconfig: str, path: Path) -> Path:
    """A copy of the kubeconfig in which the cluster has the GKE name that the peer looks for."""
    import yaml

    document = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
    document["clusters"][0]["name"] = peer.CONTEXT
    document["contexts"][0]["name"] = document["current-context"] = peer.CONTEXT
    document["contexts"][0]["context"]["cluster"] = peer.CONTEXT
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    path.chmod(0o600)
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
