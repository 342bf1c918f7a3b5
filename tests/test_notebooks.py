"""The example notebooks run as they are written.

The libraries that read and run notebooks are imported where they are used: every process of a test run imports this
file, and they take seconds.
"""

import ast
import re
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
from kernel_transport import ipc

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "examples" / "notebooks"


@pytest.fixture
def execute(machine, cluster, monkeypatch):
    """Run a notebook as the command line does; the outputs are then what its file would hold."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    def run(notebook, on=machine, timeout=100):
        for variable, value in on.environ.items():
            monkeypatch.setenv(variable, value)
        NotebookClient(
            notebook,
            config=Config(KernelManager=ipc(on.directory)),
            timeout=timeout,
            resources={"metadata": {"path": str(on.directory)}},
        ).execute()
        return notebook

    return run


def read(path):
    import nbformat

    return nbformat.read(path, as_version=4)


@pytest.fixture
def executed(execute):
    def run(name, change=lambda notebook: None, **options):
        notebook = read(NOTEBOOKS / name)
        assert not [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs], "commit no outputs"
        change(notebook)
        execute(notebook, **options)
        return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}

    return run


def text(cell):
    return "".join(each.get("text") or each.get("data", {}).get("text/plain", "") for each in cell.outputs)


def page(notebook):
    """The notebook as HTML, without what stands in its cells."""
    from nbconvert import HTMLExporter

    exported, _ = HTMLExporter(exclude_input=True).from_notebook_node(notebook)
    return exported


def saved(*sources):
    import nbformat

    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


CONNECT = "%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2"


@pytest.mark.thorough
def test_a_saved_notebook_reads_in_the_order_of_its_cells(execute):
    done = execute(saved(CONNECT, "%pathways slices", "%pathways events", "%pathways status", "%pathways disconnect"))
    connect, slices, events, status, disconnect = done.cells
    assert all(set(output.data) == {"text/plain", "text/html"} for cell in done.cells for output in cell.outputs), (
        "a MIME type that hides the picture"
    )
    assert re.search(r"closed, was connected from [-0-9]+ [0-9:]+ to [0-9:]+", text(connect))
    assert "8 × TPU" in text(connect)
    assert text(slices).count("this notebook") == 2
    assert "Connected." in text(events)
    assert re.search(r"connected, since [-0-9]+ [0-9:]+ \(as of [0-9:]+\)", text(status))
    assert "JAX is as it was before" in text(disconnect)
    shown = page(done)
    parts = [
        "was connected from",
        'aria-label="slice 1, tpuv6e:2x2',
        "Connected.",
        ">was connected at ",
        "JAX is as it was before",
    ]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.thorough
def test_a_notebook_whose_kernel_was_killed_claims_nothing_of_today(execute):
    from nbclient.exceptions import DeadKernelError

    done = saved(CONNECT, "%pathways slices", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(DeadKernelError):
        execute(done)
    connect, _slices, _killed = done.cells
    assert re.search(r"connected, since [-0-9]+ [0-9:]+ \(as of [0-9:]+\)", text(connect))
    shown = page(done)
    assert re.search(r"pw-card pw-none .*?>was connected at [-0-9]+ [0-9:]+<", shown)
    assert not any("pw-card pw-ok" in output.data["text/html"] for output in connect.outputs)
    assert "widget" not in str([output.data for cell in done.cells for output in cell.outputs])
    assert 'aria-label="slice 1, tpuv6e:2x2' in shown
    assert re.search(r"As of [-0-9]+ [0-9:]+", shown)


def test_what_the_notebooks_import_is_what_the_first_line_of_the_readme_and_make_install():
    """They install the package with what it needs, and the extra `all`, and nothing else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    readme = (ROOT / "README.md").read_text()
    assert "pip install 'pathways_jupyter[all]' " in readme
    assert "pip install -v '.[all]'" in (ROOT / "CONTRIBUTING.md").read_text()
    assert "--editable '.[all]'" in (ROOT / "Makefile").read_text()
    assert (ROOT / "binder" / "requirements.txt").read_text() == ".[all]\n"
    installed = set()
    wanted = [
        *project["project"]["dependencies"],
        *chain(*project["project"]["optional-dependencies"].values()),
        "pathways_jupyter",
    ]
    while wanted:
        name = re.match(r"[\w.-]+", wanted.pop())[0].lower().replace("_", "-")
        if name in installed:
            continue
        installed.add(name)
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            # For another system than this one.
            continue
        wanted += [each for each in needs if "extra ==" not in each]
    cells = [cell for path in NOTEBOOKS.glob("*.ipynb") for cell in read(path).cells]
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    imported = set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)) - sys.stdlib_module_names
    assert "matplotlib" in imported
    given_by = metadata.packages_distributions()
    for module in imported:
        # An editable install, such as this package's own here, lists no modules.
        assert {each.lower().replace("_", "-") for each in given_by.get(module, [module])} & installed, module


def test_01_connect_is_true(executed):
    cells = executed("01-connect.ipynb")
    assert text(cells["devices"]).count("TPU") == 8
    assert text(cells["matmul"]) == "((1024, 256), 8)"
    before, after = map(float, text(cells["training"]).split("loss ")[1].split(" -> "))
    assert after < before / 2
    assert text(cells["slices"]).count("this notebook") == 2
    assert "unplaced -> placed" in text(cells["proxy-log"]) or "Opened session" in text(cells["proxy-log"])
    assert "JAX is as it was before" in text(cells["disconnect"])
    assert "CpuDevice" in text(cells["after"])


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_03_jobs_is_true(executed):
    cells = executed("03-jobs.ipynb")
    assert "numSlices: 2" in text(cells["new"])
    assert "Job train: completed" in text(cells["train"])
    assert "8 devices on slices [0, 1]" in text(cells["logs"])
    assert "trained to 3.0" in text(cells["logs"])
    assert "Job failing: failed" in text(cells["fail"])
    assert "ValueError: no data" in text(cells["why"])
    assert "attached to  job lab" in text(cells["connect"])
    assert "8 devices; 28.0 on slice 1" in text(cells["compute"])
    assert "is over" in text(cells["disconnect"])
    assert "Line 8 of the cell: spec.workers[0].topology" in text(cells["mistake"])
    assert {"train", "failing", "lab"} <= set(text(cells["list"]).split())
    assert "Job failing is deleted." in text(cells["delete"])
    assert "Job lab: " in text(cells["show"])
    assert "running" in text(cells["second"])
    # The picture is live until the job is deleted, so that what it said at last may be shorter.
    assert "Job first: suspended (In queue team: " in text(cells["waits"]).replace("Position 1 in", "In")


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("steps", [400, pytest.param(800, marks=pytest.mark.soak)])
def test_04_elastic_is_true_after_01(executed, machine, steps):
    def shorten(notebook):
        """Fewer steps than it is written with, but enough for a slice to be lost, and to come back, among them."""
        (training,) = [cell for cell in notebook.cells if "steps=800" in cell.source]
        training.source = training.source.replace("steps=800", f"steps={steps}")

    # As 01-connect.ipynb leaves it.
    with machine.own_cluster("--tpu", "tpuv6e:2x2=2", "--fast-heal") as own:
        cells = executed("04-elastic.ipynb", shorten, on=own, timeout=300)
    assert f"{steps} steps" in text(cells["run"])
    assert "goodput" in text(cells["run"])
    assert "Slice 1 was taken down and stays down for 3 s" in text(cells["run"])
    (picture,) = [
        html for each in cells["run"].outputs if "<svg" in (html := each.get("data", {}).get("text/html", ""))
    ]
    assert re.search(r"slices: 3 at first, now [23]; between 2 and 3", picture)
    kinds = [line.split(" - ")[0] for line in text(cells["events"]).splitlines()]
    recovered = [kind for kind in kinds if kind in {"detected", "restored", "resumed"}]
    assert recovered[:3] == ["detected", "restored", "resumed"]
    first, last = map(float, re.findall(r"(\d+\.\d+) (?:at first|after)", text(cells["loss"])))
    assert last < first / 2
    assert "[4.0, 4.0" in text(cells["retry"])


def test_05_multihost_is_true(executed):
    cells = executed("05-multihost.ipynb")
    assert "2 exited" in text(cells["run"])
    assert "slice 1 worker 0 of 1" in text(cells["run"])
    assert "2 exited" in text(cells["cell"])
    assert "output_slice_0001_worker_0000.txt slice 1 worker 0 of 1" in text(cells["logs"])


@pytest.mark.thorough
def test_06_profile_is_true(executed):
    cells = executed("06-profile.ipynb")

    table = re.findall(r"^[\d.]+%  .*$", text(cells["first"]), re.MULTILINE)
    # How long chips wait for each other in it depends on the machine, and the notebook says so.
    computed = [line for line in table if "all-reduce" not in line]
    assert len(computed) == len(table) - 1
    assert "(scale)/jit(sort)/sort" in computed[0]
    assert "sort" not in text(cells["second"])
    assert "waiting for the host" in text(cells["looking"])
    # Operations that XLA has added, such as the all-reduce in which chips wait for each other, have its name.
    operations = ast.literal_eval(text(cells["python"]))
    assert operations[0][0].startswith("jit(step)/")
    assert len([name for name, _ in operations if name]) == 3
    for name in ("first", "second", "looking"):
        assert "Profile of 8 chips" in text(cells[name])


@pytest.mark.thorough
def test_07_suspend_goes_on_where_it_was(executed):
    cells = executed("07-suspend.ipynb")
    first = float(text(cells["train"]))
    assert "Suspended: " in text(cells["suspend"])
    assert "8 chips" in text(cells["other"])
    assert "suspended" in text(cells["status"])
    assert "Resumed: " in text(cells["resume"])
    assert "the same bits: True · the same array: True · on the new mesh: True" in text(cells["same"])
    second = float(text(cells["go-on"]))
    assert second < first
    shape, third = text(cells["smaller"]).rsplit(" ", 1)
    assert "'slice': 1, 'chip': 4" in shape
    assert float(third) < second
