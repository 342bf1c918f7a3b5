"""Overhead of the proxy: the workload through it, beside the same on plain CPU devices of one process."""

from __future__ import annotations

from benchmarks.measure import Row, Table, in_process

_WORKLOAD = "benchmarks.workload"
_NO_COPY = "Reading an array of plain CPU JAX copies nothing, so its device-to-host numbers are not a speed."


def run(kubeconfig: str, context: str) -> list[Table]:
    """Run the workload twice and lays the numbers side by side, one table a unit."""
    direct = in_process(_WORKLOAD, "direct")
    proxy = in_process(_WORKLOAD, "proxy", kubeconfig, context)
    return [
        _side_by_side("Dispatch through the proxy", "ms", direct, proxy),
        _side_by_side("Arrays through the proxy", "MB/s", direct, proxy),
    ]


def _side_by_side(title: str, unit: str, direct: dict[str, float], proxy: dict[str, float]) -> Table:
    rows = [
        Row(name.removesuffix(f" ({unit})"), {"plain CPU JAX": value, "through proxy and tunnel": proxy[name]})
        for name, value in direct.items()
        if name.endswith(f"({unit})")
    ]
    notes = [_NO_COPY] if unit == "MB/s" else []
    return Table(title, unit, rows, notes=notes)
