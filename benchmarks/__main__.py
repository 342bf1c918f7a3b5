"""``make bench``: every bench on one embedded cluster of its own, then the report."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import (
    colocated,
    connect,
    dispatch,
    elastic,
    imports,
    in_cluster,
    interruption,
    jobs,
    memory,
    multihost,
    multihost_uplink,
    report,
    sidebar,
    transport,
    tunnel,
)
from benchmarks.measure import Table


def main() -> int:
    """Run the benches that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks"), help="where to write, without the ending")
    parser.add_argument(
        "names",
        nargs="*",
        help="imports, connect, tunnel, in-cluster, dispatch, memory, jobs, interruption, transport, colocated, "
        "elastic, sidebar, multihost",
    )
    options = parser.parse_args()
    on_cluster = {
        "connect": connect.run,
        "tunnel": tunnel.run,
        "in-cluster": in_cluster.run,
        "dispatch": dispatch.run,
        "memory": memory.run,
        "jobs": jobs.run,
        # Last: the peer leaves its proxy behind.
        "interruption": interruption.run,
    }
    # Interruptions by name only: they take minutes.
    by_default = [name for name in on_cluster if name != "interruption"]
    chosen = options.names or ["imports", *by_default, "transport", "colocated", "elastic", "sidebar", "multihost"]
    tables: list[Table] = imports.run() if "imports" in chosen else []

    from pathways_jupyter.local import cluster

    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        # A runtime directory of its own: the benches and other sessions on this machine do not find each other.
        os.environ["JUPYTER_RUNTIME_DIR"] = directory
        running = cluster.up({"tpuv6e:2x2": 2}, name="bench")
        try:
            for name, run in on_cluster.items():
                if name in chosen:
                    print(f"{name} ...", flush=True)
                    tables += run(str(running.kubeconfig), running.context)
        finally:
            cluster.down("bench")
        if "transport" in chosen:
            print("transport ...", flush=True)
            tables += transport.run()
        if "colocated" in chosen:
            print("colocated ...", flush=True)
            tables += colocated.run()
        if "elastic" in chosen:
            print("elastic ...", flush=True)
            tables += elastic.run()
        if "sidebar" in chosen:
            print("sidebar ...", flush=True)
            tables += sidebar.run()
        if "multihost" in chosen:
            print("multihost ...", flush=True)
            tables += [*multihost.run(), *multihost_uplink.run()]
    for table in tables:
        print(report.markdown_table(table))
    report.write(tables, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
