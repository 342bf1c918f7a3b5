"""How quick the sidebar is in a real browser: on two slices, and on a thousand of four hosts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pathways_jupyter.bench.measure import Row, Table

UI_TESTS = Path(__file__).parents[2] / "labextension" / "ui-tests"
SIZES = {"2 slices": ("2", "tpuv6e:2x2", "8951"), "1,000 slices of 4 hosts": ("1000", "tpuv6e:4x4", "8961")}
_TIMEOUT = 1200


def run() -> list[Table]:
    """Starts a JupyterLab and a browser for each size, and reads what the page reports.

    Needs a checkout whose ``labextension/ui-tests`` has its packages (``jlpm install`` there), and Chromium.
    """
    browser = os.environ.get("PATHWAYS_UI_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or not (UI_TESTS / "node_modules").is_dir():
        missing = "no Chromium" if browser is None else f"no packages in {UI_TESTS.name}: run jlpm install there"
        return [Table("Sidebar", "ms", [], notes=[f"Not measured: {missing}."])]
    taken = {name: _measure(browser, *size) for name, size in SIZES.items()}
    small, large = taken.values()
    held = {name: report["server_after_mb"] - report["server_before_mb"] for name, report in taken.items()}
    return [
        Table(
            "Sidebar",
            "ms",
            [
                _row("from a pod's change to the pixel (median)", taken, "change_to_pixel_ms"),
                _row("slice map, first paint", taken, "first_paint_ms"),
                _row("first look: the server lists the cluster, then paint", taken, "first_look_ms"),
                _row("one update, main thread", taken, "update_main_thread_ms"),
            ],
            goal="change to pixel <= 500 ms; with 1,000 slices first paint <= 1 s, an update <= 50 ms",
            verdict=f"{small['change_to_pixel_ms']:.0f} ms; {large['first_paint_ms']:.0f} ms, "
            f"{large['update_main_thread_ms']:.0f} ms",
        ),
        Table(
            "Sidebar: memory that the Jupyter server takes to watch a cluster",
            "MB",
            [Row(name, {"more than before": value}) for name, value in held.items()],
            goal="<= 150 MB with 1,000 slices of 4 hosts",
            verdict=f"{max(held.values()):.0f} MB",
        ),
    ]


def _row(name: str, taken: dict[str, dict[str, Any]], key: str) -> Row:
    return Row(name, {size: report[key] for size, report in taken.items()})


def _measure(browser: str, slices: str, kind: str, port: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pw-bench-") as directory:
        report = Path(directory) / "report.json"
        environ = {
            **os.environ,
            "PATHWAYS_UI_BROWSER": browser,
            "PATHWAYS_UI_PORT": port,
            "PATHWAYS_UI_REPORT": str(report),
            "PATHWAYS_UI_SLICES": slices,
            "PATHWAYS_UI_TYPE": kind,
        }
        command = ["jlpm", "bench", "--output", str(Path(directory) / "results")]
        subprocess.run(command, cwd=UI_TESTS, env=environ, check=True, timeout=_TIMEOUT)
        measured: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return measured
