"""Cost of a ``%%colocated`` cell beyond the JAX call that carries it, on 1, 4 and 16 hosts."""

from __future__ import annotations

from benchmarks.measure import Row, Table, in_process

INSTANCES = {"tpuv6e:4x4": 4}
"""Four slices of four hosts."""
HOSTS = (1, 4, 16)
_GOAL_MS = 20.0


def run() -> list[Table]:
    """Measure on a cluster of its own, which has more hosts than the other benches need."""
    from pathways_jupyter.local import cluster

    running = cluster.up(INSTANCES, name="bench-colocated", sidecar=True)
    try:
        taken = in_process("benchmarks.colocated_workload", str(running.kubeconfig), running.context, timeout=600)
    finally:
        cluster.down("bench-colocated")
    rows = []
    for count in HOSTS:
        bare, cell = taken[f"bare {count}"], taken[f"cell {count}"]
        name = f"{count} host{'s' if count > 1 else ''}"
        rows.append(Row(name, {"bare JAX call": bare, "%%colocated cell": cell, "overhead": cell - bare}))
    overheads = ", ".join(f"{row.name}: {row.values['overhead']:.1f} ms" for row in rows)
    worst = max(row.values["overhead"] or 0.0 for row in rows)
    return [
        Table(
            "A colocated cell",
            "ms",
            rows,
            goal=f"at most {_GOAL_MS:.0f} ms over the bare JAX call, warm",
            verdict=f"{'met' if worst <= _GOAL_MS else 'missed'} ({overheads})",
            notes=(
                "Bare: a specialized colocated function on one CPU device of each host, its result read here.",
                "Cell: `%%colocated` with the source `1`, run by IPython: its checks, and showing its value, included.",
            ),
        )
    ]
