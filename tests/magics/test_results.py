"""Results of magics are shown wherever the line stands in a cell, and exactly once."""

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    shell = InteractiveShell()
    shell.run_cell("%load_ext pathways_jupyter")
    yield shell
    shell.run_cell("%unload_ext pathways_jupyter")


def shown(shell, cell):
    """Return how often the cell shows the state of the session, and how often the sessions of this machine."""
    with capture_output() as captured:
        result = shell.run_cell(cell, store_history=True)
    assert result.success, captured.stdout
    text = captured.stdout + "".join(output.data["text/plain"] for output in captured.outputs)
    return text.count("This notebook is not connected."), text.count("No sessions on this machine.")


@pytest.mark.parametrize(
    ("cell", "times"),
    [
        ("%pathways status", (1, 0)),
        ("%pathways status\nx = 1", (1, 0)),
        ("%pathways status\n%pathways sessions", (1, 1)),
        ("%pathways sessions\n%pathways status\n", (1, 1)),
        ("for _ in range(3):\n    %pathways status", (3, 0)),
        ("def look():\n    %pathways status\nlook()", (1, 0)),
        ("if True:\n    %pathways status\nx = 1", (1, 0)),
        ("%time %pathways status", (1, 0)),
        ("%%time\n%pathways status\nx = 1", (1, 0)),
        ("import asyncio\nawait asyncio.sleep(0)\n%pathways status\nx = 1", (1, 0)),
        ("found = %pathways status", (0, 0)),
        ("found = %pathways status\nfound", (1, 0)),
        ("%pathways status\n'the last value'", (1, 0)),
    ],
)
def test_a_result_is_shown_once_wherever_its_line_stands(shell, cell, times):
    assert shown(shell, cell) == times


def test_results_stay_in_the_order_of_their_lines(shell):
    with capture_output() as captured:
        shell.run_cell("print('before')\n%pathways status\nprint('after')")
    lines = captured.stdout.splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert "not connected" in "\n".join(lines[1:-1]) or captured.outputs


def test_an_assigned_result_is_the_value_and_its_pictures(shell):
    shell.run_cell("found = %pathways status")
    assert shell.user_ns["found"].value is None
    assert "not connected" in shell.user_ns["found"].text


@pytest.mark.parametrize("cell", ["%pathways help\nx = 1", "%pathways connect --help\nx = 1", "%colocated help\nx = 1"])
def test_help_is_shown_too(shell, cell):
    with capture_output() as captured:
        assert shell.run_cell(cell).success
    assert cell.splitlines()[0].split()[0] in captured.stdout + str([output.data for output in captured.outputs])
