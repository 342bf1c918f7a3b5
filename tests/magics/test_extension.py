"""%load_ext pathways_jupyter in a plain IPython: what is there before any cluster is."""

import dataclasses
import json
import queue
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.commands.tables import MAGIC
from pathways_jupyter.magics import extension


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
    text = result.result.text
    assert all(f"%pathways {name}" in text for name in MAGIC)
    # What there is to do comes first, and a line for each cell magic, beside its commands.
    assert text.splitlines()[0].startswith("%pathways connect ")
    first = [line.split("  ")[0] for line in text.splitlines()]
    cells = ["%%pathwaysjob", "%%pathways profile", "%%multihost", "%%colocated"]
    assert [each for each in first if each.startswith("%%")] == cells
    assert first[first.index("%%pathwaysjob") + 1].startswith("%pathways job ")
    assert first[first.index("%%multihost") + 1].startswith("%pathways multihost ")
    registered = shell.magics_manager.magics["cell"]
    assert {"pathways", "pathwaysjob", "multihost", "colocated"} <= set(registered)
    result, _ = run(shell, "%pathways help multihost")
    assert "%%multihost" in result.result.text
    assert "%%pathwaysjob" not in result.result.text
    result, _ = run(shell, "%pathways help profile")
    assert "--host" in result.result.text


@pytest.mark.parametrize("inside", [False, True], ids=["notebook", "function"])
def test_variables_are_replaced_in_the_commands_own_words_and_never_in_a_programs_line(shell, tmp_path, inside):
    line = "%pathways job new $who --tpu {kind}=1 --image any --gcs-bucket gs://b -o $to -- bash -c 'echo $who {kind}'"
    names = f"who, kind, to = 'train', 'tpuv6e:2x2', {str(tmp_path / 'job.yaml')!r}\n"
    cell = f"def f():\n    {names}    {line}\nf()" if inside else names + line
    result, _ = run(shell, cell)
    assert result.success
    written = yaml.safe_load((tmp_path / "job.yaml").read_text())
    assert written["metadata"]["name"] == "train"
    (container,) = written["spec"]["controller"]["template"]["spec"]["containers"]
    assert container["command"] == ["bash", "-c", "echo $who {kind}"]


def test_the_documentation_is_shown_as_markdown_and_as_text(shell):
    result, _ = run(shell, "%pathways explain expired credentials")
    shown = result.result._repr_mimebundle_()
    assert set(shown) == {"text/plain", "text/markdown"}
    assert "`gcloud auth login`" in shown["text/markdown"]
    assert "gcloud auth login" in shown["text/plain"]
    failed, said = run(shell, "%pathways explain xyzzy")
    assert not failed.success
    assert "(more: %pathways explain configerror)" in said


def test_an_error_is_two_lines_and_its_traceback_one_command_away(shell):
    result, shown = run(shell, "%pathways connect --tpu tpuv6:2x2=2")
    assert not result.success
    assert len(shown.strip().splitlines()) == 2
    assert "Unknown TPU version 'tpuv6'" in shown
    assert "Did you mean tpuv6e:2x2?" in shown
    _, full = run(shell, "%pathways traceback")
    assert "parse_instance_type" in full
    assert "%pathways explain configerror" in full
    assert "pathways-jupyter explain" not in full
    assert "Traceback" in full


def test_a_cell_magics_command_may_follow_two_spaces(shell):
    for line in ("%%pathways profile", "%%pathways  profile"):
        result, shown = run(shell, f"{line}\n1")
        assert not result.success
        assert "This notebook is not connected" in shown


def test_the_error_of_a_call_names_keywords_and_magics(shell):
    result, shown = run(shell, 'import pathways_jupyter\npathways_jupyter.connect(tpu="tpuv6e:2x2=1", wait="soon")')
    assert not result.success
    assert "For example: wait=60. (more: %pathways explain configerror)" in shown
    _, full = run(shell, "%pathways traceback")
    assert "For example: wait=60. (more: %pathways explain configerror)" in full


def test_the_traceback_of_an_error_that_is_its_own_cause_has_an_end(shell):
    program = "from pathways_jupyter.base.errors import ConfigError\n"
    program += "try:\n    raise ConfigError('round')\nexcept ConfigError as error:\n    raise error from error"
    run(shell, program)
    _, full = run(shell, "%pathways traceback")
    assert ": round" in full.rstrip().splitlines()[-1]


@pytest.mark.thorough
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


def test_an_extension_that_is_loaded_again_shows_each_notice_once(shell, capsys):
    events = queue.SimpleQueue()
    session = SimpleNamespace(
        slices=dict,
        events=list,
        event_count=0,
        follow=lambda since: iter(events.get, None),
        record=SimpleNamespace(unused_since=0.0),
        elsewhere="",
        suspender=SimpleNamespace(),
    )
    unloaded = extension.load(shell).magics.notebook
    unloaded.watch(session)
    shell.run_cell("%reload_ext pathways_jupyter")
    events.put(Event(EventKind.SLICE_DOWN, "Slice 1 is down.", data={"slice": 1, "number": 1}))
    events.put(None)
    unloaded._notices._thread.join(timeout=60)
    capsys.readouterr()
    unloaded.end_cell()
    assert capsys.readouterr().out == ""


def test_without_a_session_status_says_how_to_get_one(shell):
    result, _ = run(shell, "%pathways status")
    assert "not connected" in result.result.text
    assert "%pathways connect" in result.result.html


@pytest.mark.parametrize("command", ["disconnect", "reconnect", "events"])
def test_a_command_that_needs_a_session_says_so(shell, command):
    result, shown = run(shell, f"%pathways {command}")
    assert not result.success
    assert "not connected" in shown


def test_sessions_and_status_are_json_for_programs(shell):
    for command in ("sessions", "status"):
        view = run(shell, f"%pathways {command} --json")[0].result
        assert json.loads(view.text) == view.value


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
