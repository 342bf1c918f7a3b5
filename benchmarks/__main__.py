"""``make bench``: every bench on one embedded cluster of its own, then the report."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    colocated,
    connect,
    dispatch,
    distance,
    elastic,
    imports,
    in_cluster,
    installation,
    interruption,
    jobs,
    kernels,
    memory,
    multihost,
    report,
    saves,
    scale,
    sidebar,
    snapshots,
    transport,
    tunnel,
)
from benchmarks.measure import NotMeasured, Table

_ON_CLUSTER: dict[str, Callable[[str, str], list[Table]]] = {
    "connect": connect.run,
    "tunnel": tunnel.run,
    "in-cluster": in_cluster.run,
    "dispatch": dispatch.run,
    "memory": memory.run,
    "jobs": jobs.run,
    "snapshots": snapshots.run,
    "distance": distance.run,
    "kernels": kernels.run,
    "saves": saves.run,
    # Last: the peer leaves its proxy behind.
    "interruption": interruption.run,
}
_ON_THEIR_OWN: dict[str, Callable[[], list[Table]]] = {
    "installation": installation.run,
    "transport": transport.run,
    "colocated": colocated.run,
    "elastic": elastic.run,
    "sidebar": sidebar.run,
    "scale": scale.run,
    "multihost": multihost.run,
}


def main() -> int:
    """Run the benches that are named, or all of them; return 1 if one of them failed."""
    names = ["imports", *_ON_CLUSTER, *_ON_THEIR_OWN]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks"), help="where to write, without the ending")
    # No `choices`: Python 3.11 would refuse that none is named.
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    # Interruptions by name only: they take minutes.
    chosen = options.names or [name for name in names if name != "interruption"]
    results = [_tables_of("imports", imports.run)] if "imports" in chosen else []

    from pathways_jupyter.local import cluster

    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        # A runtime directory of its own: the benches and other sessions on this machine do not find each other.
        os.environ["JUPYTER_RUNTIME_DIR"] = directory
        if on_cluster := {name: run for name, run in _ON_CLUSTER.items() if name in chosen}:
            running = cluster.up({"tpuv6e:2x2": 2}, name="bench")
            try:
                where = str(running.kubeconfig), running.context
                results += [_tables_of(name, run, *where) for name, run in on_cluster.items()]
            finally:
                cluster.down("bench")
        results += [_tables_of(name, run) for name, run in _ON_THEIR_OWN.items() if name in chosen]
    tables = [table for _, tables in results for table in tables]
    for table in tables:
        print(report.markdown_table(table))
    report.write(tables, options.output)
    return 0 if all(succeeded for succeeded, _ in results) else 1


def _tables_of(name: str, run: Callable[..., list[Table]], *where: str) -> tuple[bool, list[Table]]:
    """Run a bench; return False and a table with the reason if it fails, so that the others go on."""
    print(f"{name} ...", flush=True)
    try:
        return True, run(*where)
    except NotMeasured as missing:
        return True, [Table(name, "", [], notes=[f"Not measured: {missing}"])]
    except Exception as error:  # Whatever it raises, the other benches can be measured.
        traceback.print_exc()
        # What failed in a process of its own carries that one's traceback, whose last line says why.
        reason = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        return False, [Table(name, "", [], notes=[f"Not measured: {reason}"])]


if __name__ == "__main__":
    sys.exit(main())
