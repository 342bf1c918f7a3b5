"""Latency and cost of the sidebar in a real browser: on two slices, and on a thousand of four hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.counting import counting
from benchmarks.measure import NotMeasured, Row, Table

UI_TESTS = Path(__file__).parents[1] / "labextension" / "ui-tests"
FEW, MANY = "2 slices", "1,000 slices of 4 hosts"
SIZES = {FEW: ("2", "tpuv6e:2x2"), MANY: ("1000", "tpuv6e:4x4")}
PAGES = 3
WATCHED = ("pods", "jobs", "jobsets")
_TIMEOUT = 300
_MAP = "from its section's unfolding to the slice map's first paint"


def run() -> list[Table]:
    """Start a JupyterLab and a browser for each size, and read what the page reports.

    Raises:
      NotMeasured: There is no checkout, Chromium, kubectl, or Node for the packages of ``labextension/ui-tests``.
    """
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    browser = os.environ.get("PATHWAYS_UI_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    for found, what in (
        (browser, "there is no Chromium"),
        (shutil.which("node", path=binaries), "there is no Node"),
        (shutil.which("kubectl"), "there is no kubectl"),
        (UI_TESTS.is_dir(), "this is no checkout"),
    ):
        if not found:
            raise NotMeasured(f"{what}.")
    environ = {
        **os.environ,
        "PATH": binaries,
        "PATHWAYS_UI_BROWSER": str(browser),
        "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1",
    }
    _call(["jlpm", "install", "--immutable"], environ)
    taken = {name: _measure(environ, *size) for name, size in SIZES.items()}
    return [_speed(taken), _memory(taken), _watches()]


def watches(kubeconfig: str) -> dict[str, int]:
    """Return the number of open watches of each resource while several pages show one cluster."""

    async def look() -> dict[str, int]:
        from pathways_jupyter.server.scope import Scope
        from pathways_jupyter.server.server_state import ServerState

        with tempfile.TemporaryDirectory(prefix="pw-bench-") as directory, contextlib.ExitStack() as stack:
            async with counting(kubeconfig, Path(directory)) as counted, asyncio.timeout(_TIMEOUT):
                stack.enter_context(mock.patch.dict(os.environ, {"KUBECONFIG": counted.kubeconfig}))
                server_state = ServerState()
                live = asyncio.Event()
                for _ in range(PAGES):
                    watch = await server_state.watch(Scope())
                    watch.add(lambda message: live.set() if message.get("watch") == "live" else None)
                await live.wait()
                # A list that was answered becomes a watch a moment later.
                await counted.until(lambda watches: len(watches) >= len(WATCHED))
                seen = dict(counted.watches)
                await server_state.close()
                return seen

    return asyncio.run(look())


def _speed(taken: dict[str, dict[str, Any]]) -> Table:
    def row(name: str, key: str) -> Row:
        return Row(name, {size: report[key] for size, report in taken.items()})

    few, many = taken[FEW], taken[MANY]
    return Table(
        "Sidebar",
        "ms",
        [
            row("from a pod's change to the pixel", "change_to_pixel_ms"),
            row(
                "first look: from opening the panel, listing the cluster, to the first paint of all slices",
                "first_look_ms",
            ),
            row(_MAP, "first_paint_ms"),
            row("main thread, for one update", "update_main_thread_ms"),
        ],
        goal="change to pixel <= 300 ms; with 1,000 slices first paint <= 1,000 ms, an update <= 30 ms",
        verdict=f"change to pixel {few['change_to_pixel_ms']:.0f} and {many['change_to_pixel_ms']:.0f} ms, "
        f"first look {many['first_look_ms']:.0f} ms, an update {many['update_main_thread_ms']:.0f} ms",
        notes=[
            "Medians, in a headless Chromium that paints without a GPU, beside cluster and server on the same cores.",
            "The first look is one look on a cold server: it draws what the Jobs say while the pods are still listed.",
        ],
    )


def _memory(taken: dict[str, dict[str, Any]]) -> Table:
    held = {size: report["server_after_mb"] - report["server_before_mb"] for size, report in taken.items()}
    return Table(
        "Sidebar: memory of the Jupyter server",
        "MB",
        [Row("beyond what it holds without a page", held)],
        goal="<= 150 MB with 1,000 slices of 4 hosts",
        verdict=f"{held[MANY]:.0f} MB",
    )


def _watches() -> Table:
    from pathways_jupyter.local import cluster

    running = cluster.up({"tpuv6e:2x2": 2}, name="bench-sidebar", hollow=True)
    try:
        seen = watches(str(running.kubeconfig))
    finally:
        cluster.down("bench-sidebar")
    return Table(
        "Sidebar: what the API server serves",
        "open watches",
        [Row(name, {f"{PAGES} pages": count}) for name, count in sorted(seen.items())],
        goal="one of each resource in all",
        verdict=f"at most {max(seen.values())}",
    )


def _measure(environ: dict[str, str], slices: str, kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pw-bench-") as directory:
        report = Path(directory) / "report.json"
        variables = {
            **environ,
            "PATHWAYS_UI_PORT": _free_port(),
            "PATHWAYS_UI_REPORT": str(report),
            "PATHWAYS_UI_SLICES": slices,
            "PATHWAYS_UI_TYPE": kind,
        }
        _call(["jlpm", "bench", "--output", str(Path(directory) / "results")], variables)
        measured: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return measured


def _call(command: list[str], environ: dict[str, str]) -> None:
    """Run a command that says nothing unless it fails, and that leaves nothing behind when it is interrupted."""
    process = subprocess.Popen(
        command,
        cwd=UI_TESTS,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=_TIMEOUT)
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate()
        raise
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{said[-4000:]}")


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])
