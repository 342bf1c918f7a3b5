"""The house's rule that imports point downwards, held by the tests as well as by `make lint`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FORBIDDEN = {
    "pathways_jupyter": {"jax", "aiohttp", "kubernetes", "rich", "IPython", "numpy", "click"},
    "pathways_jupyter.session.supervisor.main": {"jax", "kubernetes", "IPython", "numpy"},
    "pathways_jupyter.operator.main": {"jax", "kubernetes", "IPython"},
    "pathways_jupyter.server": {"jax"},
}


def test_imports_point_downwards():
    """Run the contracts of pyproject.toml."""
    lint = "import sys; from importlinter import cli; sys.exit(cli.lint_imports())"
    done = subprocess.run([sys.executable, "-c", lint], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", FORBIDDEN)
def test_an_import_loads_nothing_unused(module):
    program = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not FORBIDDEN[module] & set(done.stdout.split())
