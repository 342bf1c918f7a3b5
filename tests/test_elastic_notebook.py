"""The example of elastic training runs as it is written, on a cluster as the first example starts one."""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from kernel_transport import ipc

pytestmark = pytest.mark.thorough

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebooks" / "04-elastic.ipynb"


@pytest.fixture
def own(machine, monkeypatch):
    """A machine whose embedded cluster has two slices, as 01-connect.ipynb leaves it."""
    with tempfile.TemporaryDirectory(prefix="pj-") as name:
        own = replace(
            machine,
            directory=Path(name),
            environ={**machine.environ, "HOME": name, "JUPYTER_RUNTIME_DIR": f"{name}/runtime"},
        )
        assert own.cli("local", "up", "--tpu", "tpuv6e:2x2=2", "--fast-heal").returncode == 0
        for variable, value in own.environ.items():
            monkeypatch.setenv(variable, value)
        yield own
        assert own.cli("local", "down", "--yes").returncode == 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("steps", [400, pytest.param(800, marks=pytest.mark.soak)])
def test_04_elastic_is_true_after_01(own, steps):
    # Imported here, because every process of a test run imports this file, and they take seconds.
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs], "commit no outputs"
    # With fewer steps than it is written with, but enough for a slice to be lost, and to come back, among them.
    (training,) = [cell for cell in notebook.cells if "steps=800" in cell.source]
    training.source = training.source.replace("steps=800", f"steps={steps}")
    NotebookClient(
        notebook,
        config=Config(KernelManager=ipc(own.directory)),
        timeout=300,
        resources={"metadata": {"path": str(own.directory)}},
    ).execute()
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}

    def text(name):
        return "".join(each.get("text") or each.get("data", {}).get("text/plain", "") for each in cells[name].outputs)

    assert f"{steps} steps" in text("run")
    assert "goodput" in text("run")
    assert "Slice 1 was taken down and stays down for 3 s" in text("run")
    (picture,) = [
        html for each in cells["run"].outputs if "<svg" in (html := each.get("data", {}).get("text/html", ""))
    ]
    assert re.search(r"slices: 3 at first, now [23]; between 2 and 3", picture)
    kinds = [line.split(" - ")[0] for line in text("events").splitlines()]
    recovered = [kind for kind in kinds if kind in {"detected", "restored", "resumed"}]
    assert recovered[:3] == ["detected", "restored", "resumed"]
    first, last = map(float, re.findall(r"(\d+\.\d+) (?:at first|after)", text("loss")))
    assert last < first / 2
    assert "[4.0, 4.0" in text("retry")
