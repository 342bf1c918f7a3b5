"""Time to import the package and to load the extension."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import Row, Table, interleave

_IMPORT = "import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
_LOAD_EXTENSION = """
import time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
started = time.perf_counter()
shell.run_line_magic("load_ext", "pathways_jupyter")
print(time.perf_counter() - started)
"""


def run() -> list[Table]:
    """Measure import and ``%load_ext`` in fresh processes."""
    took = interleave(
        {
            "import pathways_jupyter": lambda: _seconds(_IMPORT.format(module="pathways_jupyter")),
            "%load_ext pathways_jupyter": lambda: _seconds(_LOAD_EXTENSION),
            "import jax, for scale": lambda: _seconds(_IMPORT.format(module="jax")),
        },
        times=5,
    )
    rows = [Row(name, {"ours": seconds * 1e3}) for name, seconds in took.items()]
    imported, loaded = (rows[index].values["ours"] or 0.0 for index in (0, 1))
    return [
        Table(
            "Imports",
            "ms",
            rows,
            goal="import <= 50 ms, %load_ext <= 150 ms",
            verdict=f"import {imported:.1f} ms, %load_ext {loaded:.1f} ms",
        )
    ]


def _seconds(program: str) -> float:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])
