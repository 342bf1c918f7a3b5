"""Size and time of an installation: each in an empty environment, from the wheel and the machine's pip cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from benchmarks.measure import NotMeasured, Row, Table

ROOT = Path(__file__).parents[1]
_COUNT = "import importlib.metadata as m, json; print(json.dumps(sorted(d.name for d in m.distributions())))"


def run() -> list[Table]:
    """Install JAX alone, the core and everything, each into an environment of its own.

    Raises:
      NotMeasured: There is no checkout with a sidebar that is built.
    """
    if not (ROOT / "pathways_jupyter" / "labextension" / "package.json").is_file():
        raise NotMeasured("there is no checkout with a sidebar that is built.")
    with tempfile.TemporaryDirectory(prefix="pw-bench-") as directory:
        # The sidebar of the checkout is packed as it is: building it again would replace it.
        environ = {**os.environ, "HATCH_JUPYTER_BUILDER_SKIP_NPM": "1"}
        _pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", directory, str(ROOT), environ=environ)
        (wheel,) = Path(directory).glob("*.whl")
        rows = [
            Row(name, _installed(Path(directory) / str(number), requirement))
            for number, (name, requirement) in enumerate(
                {
                    "jax, for scale": "jax",
                    "pathwaysutils": "pathwaysutils==0.1.13",
                    "pathways_jupyter": str(wheel),
                    "pathways_jupyter[all]": f"{wheel}[all]",
                }.items()
            )
        ]
    jax, _, core, _ = (row.values for row in rows)
    more = {column: (core[column] or 0.0) - (jax[column] or 0.0) for column in ("distributions", "MB")}
    return [
        Table(
            "Installation",
            "",
            rows,
            goal="the core beside JAX: at most 70 distributions and 330 MB",
            verdict=f"{more['distributions'] - 1:.0f} distributions beside itself, {more['MB']:.0f} MB",
        )
    ]


def _installed(place: Path, requirement: str) -> dict[str, float | None]:
    venv.create(place, with_pip=True)
    before = _megabytes(place)
    started = time.perf_counter()
    python = str(place / "bin" / "python")
    _pip(python, "install", requirement)
    seconds = time.perf_counter() - started
    listed = subprocess.run([python, "-c", _COUNT], capture_output=True, text=True, check=True).stdout
    names = set(json.loads(listed)) - {"pip", "setuptools"}
    return {"distributions": len(names), "MB": _megabytes(place) - before, "seconds": seconds}


def _pip(python: str, *arguments: str, environ: dict[str, str] | None = None) -> None:
    subprocess.run([python, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"], env=environ, check=True)


def _megabytes(place: Path) -> float:
    return sum(path.lstat().st_size for path in place.rglob("*") if not path.is_dir()) / 1e6
