"""The cluster at a distance: ours beside plain JAX through kubectl's forward, over a link with a delay and a rate.

Each column runs the same workload in a process of its own, row by row, while this one counts what goes over the link.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.connect import renamed
from benchmarks.distance_workload import ROWS
from benchmarks.in_cluster import in_pod
from benchmarks.link import Link
from benchmarks.measure import NotMeasured, Row, Table, in_process
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.service import discovery, names
from pathways_jupyter.session import protocol
from pathways_jupyter.session.kernel import spawn
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord

_ROUND_TRIPS_MS = (0, 30, 100)
_UP_MEGABITS, _DOWN_MEGABITS = 20, 100
_OURS, _RELAY, _KUBECTL, _PEER, _POD = "ours", "ours, relay", "JAX over kubectl", "isc_pathways", "in the cluster"
_TRIPS = "round trips, ours"
_CONNECT = ROWS[0]
_SECONDS = 60.0


def run(kubeconfig: str, context: str) -> list[Table]:
    """Measure at each distance.

    Raises:
      NotMeasured: There is no kubectl.
    """
    if not shutil.which("kubectl"):
        raise NotMeasured("there is no kubectl")
    near = in_pod(kubeconfig, context, "distance_workload")
    return [_table(kubeconfig, context, milliseconds, near) for milliseconds in _ROUND_TRIPS_MS]


def _table(kubeconfig: str, context: str, milliseconds: int, near: dict[str, float]) -> Table:
    taken: dict[str, dict[str, float]] = {_POD: near} if milliseconds else {}
    trips: dict[str, float] = {}
    delay = milliseconds / 2000
    with tempfile.TemporaryDirectory(prefix="pw-") as directory, Link(Path(kubeconfig), delay=delay) as link:
        if milliseconds:
            link.shape(delay=delay, up=_UP_MEGABITS * 125_000, down=_DOWN_MEGABITS * 125_000)
        far = link.write(Path(directory) / "far")
        for column, relay in ((_OURS, False), (_RELAY, True)):
            settings = {"context": context, "relay": relay}
            # In the environment, where loading the extension finds it.
            environ = {**os.environ, "KUBECONFIG": str(far)}
            taken[column], counted = _measure(link, environ, json.dumps(settings))
            # With nothing on the way an answer is back before it can be distinguished from another one.
            trips = counted if milliseconds and not relay else trips
        with _forwarded(kubeconfig, str(far), context) as port:
            environ = {**os.environ, "JAX_PLATFORMS": "proxy", "JAX_BACKEND_TARGET": f"grpc://127.0.0.1:{port}"}
            taken[_KUBECTL], _ = _measure(link, {**environ, "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true"})
        environ = {**os.environ, "KUBECONFIG": str(renamed(str(far), Path(directory) / "named"))}
        environ["IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"] = "true"
        theirs = in_process("benchmarks.peer", environ=environ)
        taken[_PEER] = {_CONNECT: theirs["result"], "disconnect": theirs["disconnect"]}
    columns = [_OURS, _RELAY, _KUBECTL, _PEER, *([_POD, _TRIPS] if milliseconds else [])]
    taken[_TRIPS] = trips
    link_words = (
        f", {_UP_MEGABITS} Mbit/s up and {_DOWN_MEGABITS} down" if milliseconds else ", as fast as this machine"
    )
    # Not beside kubectl's: its proxy and its forward were there before.
    compared = [row for row in ROWS if row in taken[_KUBECTL] and row != _CONNECT]
    behind = [row for row in compared if taken[_OURS][row] > 1.1 * taken[_KUBECTL][row] + 0.01]
    return Table(
        f"At a distance: {milliseconds} ms there and back{link_words}",
        "s",
        [Row(row, {column: taken[column].get(row) for column in columns}) for row in ROWS],
        goal="no row behind JAX over kubectl by more than a tenth",
        verdict=f"behind in {', '.join(behind)}" if behind else "none",
        notes=[
            "One run of each, in turn. kubectl's proxy and forward were there before JAX began.",
            "The Interrupt is SIGINT, as Jupyter sends it, in a wait for a result; until Python has left that.",
            "isc_pathways asks the proxy's version over exec first, and gives up after 10 s.",
            *(
                ["In the cluster: the same program in a pod beside the proxy, as a lab there has it."]
                if milliseconds
                else []
            ),
        ],
    )


def _measure(link: Link, environ: dict[str, str], *arguments: str) -> tuple[dict[str, float], dict[str, float]]:
    """Run the workload row by row; return the seconds of each row, and the round trips."""
    seconds, trips = {}, {}
    command = [sys.executable, "-m", "benchmarks.distance_workload", *arguments]
    with subprocess.Popen(
        command, env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        # It is prepared.
        child.stdout.readline()
        for row in ROWS:
            traffic = link.count()
            print(row, file=child.stdin, flush=True)
            if not (answer := child.stdout.readline()):
                raise RuntimeError(f"The workload ended during {row!r} with {child.wait()}.")
            if (taken := json.loads(answer)) is not None:
                seconds[row], trips[row] = taken, float(traffic.stages)
        child.stdin.close()
    return seconds, trips


@contextlib.contextmanager
def _forwarded(kubeconfig: str, far: str, context: str) -> Iterator[int]:
    """Make a proxy nearby, and forward its port with kubectl from afar; yield the local port."""

    def kubectl(path: str) -> list[str]:
        return ["kubectl", "--kubeconfig", path, "--context", context, "--namespace", record.namespace]

    config = ConnectConfig(instances={"tpuv6e:2x2": 1}, kubeconfig=kubeconfig, context=context, wait=_SECONDS)
    link = spawn.supervisor()
    try:
        asked: Any = {"config": protocol.config_to_json(config), "kernel_pid": os.getpid()}
        record = SessionRecord.from_json(link.answer(link.ask(Method.START, **asked), patience=_SECONDS))
        pod = json.loads(subprocess.check_output([*kubectl(kubeconfig), "get", "pod", record.pod, "-o", "json"]))
        (container,) = (each for each in pod["spec"]["containers"] if each["name"] == names.PROXY_CONTAINER)
        command = [*kubectl(far), "port-forward", f"pod/{record.pod}", f":{discovery.flags(container)['server_port']}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
            assert forward.stdout is not None
            yield int(forward.stdout.readline().split(" -> ")[0].rsplit(":", 1)[1])
            forward.terminate()
    finally:
        link.close(patience=_SECONDS)
