"""The example notebooks run as they are written."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"


@pytest.fixture
def executed(machine, cluster, monkeypatch):
    def execute(name):
        for variable, value in machine.environ.items():
            monkeypatch.setenv(variable, value)
        notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
        assert not [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs], "commit no outputs"
        NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(machine.directory)}}).execute()
        return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}

    return execute


def text(cell):
    return "".join(each.get("text") or each.get("data", {}).get("text/plain", "") for each in cell.outputs)


def test_01_connect_is_true(executed):
    cells = executed("01-connect.ipynb")
    assert text(cells["devices"]).count("TPU") == 8
    assert text(cells["matmul"]) == "((1024, 256), 8)"
    before, after = map(float, text(cells["training"]).split("loss ")[1].split(" -> "))
    assert after < before / 2
    assert text(cells["slices"]).count("this session") == 2
    assert "unplaced -> placed" in text(cells["proxy-log"]) or "Opened session" in text(cells["proxy-log"])
    assert "JAX is as it was before" in text(cells["disconnect"])
    assert "CpuDevice" in text(cells["after"])


def test_02_colocated_is_true(executed):
    cells = executed("02-colocated.ipynb")
    assert "[host 0] hello from" in text(cells["first"])
    assert "[host 0] 0\n[host 1] 1" in text(cells["first"])
    assert "[host 0] [0.0, 2.0, 4.0, 6.0]\n[host 1] [8.0, 10.0, 12.0, 14.0]" in text(cells["double"])
    assert "True" in text(cells["doubled"])
    (failed,) = cells["error"].outputs
    assert failed["ename"] == "HostError"
    assert "\n".join(failed["traceback"]).count("ZeroDivisionError") == 1
    assert "'This is written on TPU worker 0'" in text(cells["simple-check"])
    assert [each for each in cells["medium"].outputs if "image/png" in each.get("data", {})]
    assert "w [ 1.  -2.   0.5" in text(cells["advanced"])
    assert "JAX is as it was before" in text(cells["disconnect"])
