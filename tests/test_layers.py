"""The house's rule that imports point downwards, held by the tests as well as by `make lint`."""

import ast
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


def test_no_decision_rests_on_what_a_thread_says_of_its_life():
    """Until Python 3.12 an Interrupt in is_alive() or join() marks a living thread as ended (python/cpython#90882)."""
    found = []
    for path in (ROOT / "pathways_jupyter").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            # registry.is_alive(record) is another one, and a string's join() takes an argument.
            of_thread = not call.args or "thread" in ast.unparse(call.func.value).lower()
            if call.func.attr in {"is_alive", "join"} and of_thread:
                found.append(f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}")
    assert not found, "have the thread set an Event of base/interrupts.py in its finally"


@pytest.mark.parametrize("module", FORBIDDEN)
def test_an_import_loads_nothing_unused(module):
    program = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not FORBIDDEN[module] & set(done.stdout.split())
