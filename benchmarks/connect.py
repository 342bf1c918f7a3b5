"""From connect to the first JAX result, by stage, beside pathwaysutils on the same cluster in the same run."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import peer
from benchmarks.measure import Row, Table, in_process, median
from pathways_jupyter.base.events import Event, EventKind, Stage

_ROUNDS = 3
_TYPING_SECONDS = 2.0
_OURS = "benchmarks.connect"


def run(kubeconfig: str, context: str) -> list[Table]:
    """Connect with both in turn, each time in a fresh process that has imported JAX already."""
    notebook: list[dict[str, float]] = []
    prepared: list[dict[str, float]] = []
    script: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        environ = {
            **os.environ,
            "KUBECONFIG": str(renamed(kubeconfig, Path(directory) / "kubeconfig")),
            # Without it the client waits for credentials that only Google's cloud gives; ours sets it by itself.
            "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        }
        for _ in range(_ROUNDS):
            notebook.append(in_process(_OURS, kubeconfig, context, "notebook"))
            prepared.append(in_process(_OURS, kubeconfig, context, "prepared"))
            script.append(in_process(_OURS, kubeconfig, context, "script"))
            theirs.append(in_process("benchmarks.peer", environ=environ))
    return [table(medians(notebook), medians(prepared), medians(script), medians(theirs))]


def main(arguments: list[str]) -> int:
    """One connection of ours, timed by stage; prints one line of JSON."""
    kubeconfig, context, kind = arguments
    loaded = time.perf_counter()
    import pathways_jupyter

    if kind != "script":
        # As loading the extension does: a supervisor stands by while the user is still importing, and typing.
        pathways_jupyter.prepare()
    import jax

    if kind == "notebook":
        time.sleep(max(0.0, loaded + _TYPING_SECONDS - time.perf_counter()))

    began, began_at = time.perf_counter(), time.time()
    session = pathways_jupyter.connect(
        kubeconfig=kubeconfig,
        context=context,
        service=peer.SERVICE,
        tpu={"tpuv6e:2x2": 2},
        wait=60,
    )
    connected = time.perf_counter()
    if int(jax.numpy.arange(8).sum()) != 28:
        raise RuntimeError("The sum came back wrong.")
    computed = time.perf_counter()
    stages = stage_seconds(session.events(), began_at, began_at + connected - began)
    session.disconnect()
    ended = time.perf_counter()
    taken = {"connect": connected - began, "result": computed - began, "disconnect": ended - computed}
    print(json.dumps({**taken, **stages}))
    return 0


def stage_seconds(events: Sequence[Event], began: float, ended: float) -> dict[str, float]:
    """Seconds of every stage, and those "before" the first; 0 for a stage that had not begun before another one ended.

    The time between two events belongs to the stage that the later one ends, or else to the one that the earlier one
    reports. Stages overlap: what the proxy's program does before it listens is in the one that ends next.
    """
    reports = [event for event in events if event.kind is EventKind.STAGE]
    # Every stage, because a quick one reports nothing of its own in some runs, and the medians need it in all.
    taken: dict[str, float] = {"before": reports[0].at - began, **dict.fromkeys(Stage, 0.0)}
    for event, following in zip(reports, [*reports[1:], None], strict=True):
        reporter = following if following is not None and following.data.get("done") else event
        taken[reporter.data["stage"]] += (ended if following is None else following.at) - event.at
    return taken


def table(
    notebook: dict[str, float], prepared: dict[str, float], script: dict[str, float], theirs: dict[str, float]
) -> Table:
    """Return the table of the medians of each kind of connection."""

    def row(name: str, key: str) -> Row:
        columns = {
            "in a notebook": notebook,
            "in a prepared script": prepared,
            "in a script": script,
            "isc_pathways.connect": theirs,
        }
        return Row(name, {column: 1e3 * run[key] if key in run else None for column, run in columns.items()})

    stages = [stage for stage in ("before", *Stage) if notebook[stage] or prepared[stage] or script[stage]]
    pod = notebook[Stage.START]
    return Table(
        "Connect",
        "ms",
        [
            row("connect, in all", "connect"),
            *(row(f"of which {stage}", stage) for stage in stages),
            row("until the first result", "result"),
            row("disconnect", "disconnect"),
        ],
        goal="beyond the proxy pod's own start <= 300 ms; the pod's own start <= 1,000 ms; a prepared script <= 0.2 of "
        "pathwaysutils' connect",
        verdict=f"beyond the start {1e3 * (notebook['connect'] - pod):.0f} ms, the pod's own start {1e3 * pod:.0f} ms; "
        f"a prepared script {prepared['connect'] / theirs['connect']:.2f} of pathwaysutils', one that is not "
        f"{script['connect'] / theirs['connect']:.2f}",
        notes=[
            "Warm cluster, JAX imported before, a fresh process each time, medians of interleaved rounds.",
            "In a notebook a supervisor has stood by since the extension was loaded, 2 s before; a prepared script has "
            "called prepare() before it imported JAX; another script's connect starts one.",
            "A stage of 0 ms was so quick that nothing was reported of it: its time is in that of the next one.",
            "pathwaysutils reports no stages; it returns before the slices are placed.",
        ],
    )


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each measurement."""
    return {name: median([each[name] for each in runs]) for name in runs[0]}


def renamed(kubeconfig: str, path: Path) -> Path:
    """Return a copy of the kubeconfig in which the cluster has the GKE name that the peer looks for."""
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
