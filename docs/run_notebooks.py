"""Run the example notebooks on an embedded cluster of their own, so that the site shows their real outputs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples" / "notebooks"
TIMEOUT_SECONDS = 300


def main() -> None:
    """Write each notebook with its outputs into ``docs/notebooks``, unless it is there and newer than its source."""
    out = HERE / "notebooks"
    out.mkdir(exist_ok=True)
    notebooks = [
        each
        for each in sorted(EXAMPLES.glob("0*.ipynb"))
        if not (out / each.name).exists() or (out / each.name).stat().st_mtime < each.stat().st_mtime
    ]
    if not notebooks:
        return
    with tempfile.TemporaryDirectory(prefix="pathways-docs-") as directory:
        # Files, sessions and the cluster of its own: yours are neither used nor ended.
        environ = {**os.environ, "HOME": directory, "JUPYTER_RUNTIME_DIR": f"{directory}/runtime"}
        try:
            for number, notebook in enumerate(notebooks, 1):
                print(f"Running {notebook.name} ({number} of {len(notebooks)})", flush=True)
                # What it writes goes where it is.
                copy = shutil.copy(notebook, directory)
                _call(
                    *("-m", "nbconvert", "--to=notebook", "--execute", "--log-level=ERROR"),
                    # Over TCP each kernel would warn that it is not encrypted.
                    *("--KernelManager.transport=ipc", f"--KernelManager.ip={directory}/kernel"),
                    *(f"--ExecutePreprocessor.timeout={TIMEOUT_SECONDS}", f"--output-dir={out}", copy),
                    environ=environ,
                )
                _replace(out / notebook.name, {directory: "/home/you", sys.prefix: "/home/you/.venv"})
        finally:
            _call("-m", "pathways_jupyter", "local", "down", "--yes", environ=environ)


def _replace(file: Path, paths: dict[str, str]) -> None:
    """Replace directories of the machine that runs the notebooks, which say nothing to a reader."""
    text = file.read_text(encoding="utf-8")
    for path, shown in paths.items():
        text = text.replace(path, shown)
    file.write_text(text, encoding="utf-8")


def _call(*words: str, environ: dict[str, str]) -> None:
    subprocess.run([sys.executable, *words], env=environ, check=True)


if __name__ == "__main__":
    main()
