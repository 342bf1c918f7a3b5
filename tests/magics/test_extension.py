"""%load_ext pathways_jupyter in a plain IPython: what is there before any cluster is."""

import dataclasses
import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from pathways_jupyter.commands.tables import MAGIC


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """One shell for all tests: each that loads the extension starts a supervisor in advance."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_CONFIG_DIR", str(home / "config"))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(home / "runtime"))
        patch.setenv("KUBECONFIG", str(home / "no-kubeconfig"))
        shell = InteractiveShell()
        shell.run_cell("%load_ext pathways_jupyter")
        yield shell
        shell.run_cell("%unload_ext pathways_jupyter")


def run(shell, cell):
    with capture_output() as captured:
        result = shell.run_cell(cell)
    return result, captured.stdout


@pytest.mark.parametrize("name", MAGIC)
def test_every_command_explains_itself_with_an_example_or_a_usage(shell, name):
    result, _ = run(shell, f"%pathways {name} --help")
    assert f"%pathways {name}" in result.result.text
    assert MAGIC[name].summary in result.result.text
    assert "<table" in result.result.html or not (MAGIC[name].options or MAGIC[name].words)


def test_help_lists_all_commands(shell):
    result, _ = run(shell, "%pathways")
    assert all(f"%pathways {name}" in result.result.text for name in MAGIC)


def test_an_error_is_two_lines_and_its_traceback_one_command_away(shell):
    result, shown = run(shell, "%pathways connect --tpu tpuv6:2x2=2")
    assert not result.success
    assert len(shown.strip().splitlines()) == 2
    assert "Unknown TPU version 'tpuv6'" in shown
    assert "Did you mean tpuv6e:2x2?" in shown
    _, full = run(shell, "%pathways traceback")
    assert "parse_instance_type" in full
    assert "Traceback" in full


def test_an_error_has_no_colours_where_they_are_not_wanted(machine, open_notebook):
    plain = open_notebook(dataclasses.replace(machine, environ={**machine.environ, "NO_COLOR": "1"}))
    notebook = open_notebook()
    for each in (plain, notebook):
        each.run("%load_ext pathways_jupyter")
    mistake = "%pathways connect --tpu tpuv6:2x2=2"
    assert "\x1b" in notebook.run(mistake).shown
    notebook.run("%colors NoColor")
    for each in (plain, notebook):
        shown = each.run(mistake).shown
        assert "ConfigError: Unknown TPU version 'tpuv6'" in shown
        assert "\x1b" not in shown
        assert "\x1b" not in each.run("%pathways traceback").text


def test_the_magics_own_documentation_shows_how_to_begin(shell):
    shown = shell.find_line_magic("pathways").__doc__
    lines = [line.split()[1:2] for line in shown.splitlines() if line.strip().startswith("%pathways ")]
    assert len(lines) >= 5
    assert {name for (name,) in lines} <= {*MAGIC, "COMMAND"}


def test_without_a_session_status_says_how_to_get_one(shell):
    result, _ = run(shell, "%pathways status")
    assert "not connected" in result.result.text
    assert "%pathways connect" in result.result.html


@pytest.mark.parametrize("command", ["disconnect", "reconnect", "events"])
def test_a_command_that_needs_a_session_says_so(shell, command):
    result, shown = run(shell, f"%pathways {command}")
    assert not result.success
    assert "not connected" in shown


def test_sessions_have_an_empty_state(shell):
    assert "No sessions" in run(shell, "%pathways sessions")[0].result.text


def test_loading_twice_changes_nothing_and_unloading_takes_everything_out(shell):
    before = len(shell.Completer.custom_matchers)
    shell.run_cell("%load_ext pathways_jupyter\n%reload_ext pathways_jupyter")
    assert len(shell.Completer.custom_matchers) == before
    shell.run_cell("%unload_ext pathways_jupyter")
    assert "pathways" not in shell.magics_manager.magics["line"]
    shell.run_cell("%load_ext pathways_jupyter")
    assert "pathways" in shell.magics_manager.magics["line"]


def test_loading_imports_nothing_that_the_first_cell_does_not_need():
    program = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell; shell = InteractiveShell()\n"
        "before = set(sys.modules); shell.run_cell('%load_ext pathways_jupyter')\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"jax", "numpy", "aiohttp", "kubernetes", "rich", "click", "yaml", "asyncio"}
