"""The commands that are made from their declarations: what they print, where, and with which exit code."""

import contextlib
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pathways_jupyter.actions.multihost import RunFailed
from pathways_jupyter.actions.shell import CommandInterrupted, Contradiction, show_lines
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.cli import main
from pathways_jupyter.cli.declared import show
from pathways_jupyter.cli.terminal import TerminalShell
from pathways_jupyter.commands.tables import GROUPS, MAGIC, TERMINAL
from pathways_jupyter.render.view import View, said


def run(action, *, as_json=False):
    """Run an action as a command does."""

    @click.command()
    def command():
        show(TerminalShell(as_json=as_json), action)

    return CliRunner().invoke(command)


def test_a_result_is_on_standard_output_and_everything_else_is_not():
    def action(shell):
        shell.say(advice("Write: {job_apply:x}"))
        return View({"name": "x", "parts": {2, 1}}, "✓ done", "", exit_code=3)

    done = run(action)
    assert (done.stdout, done.stderr, done.exit_code) == ("✓ done\n", "Write: pathways-jupyter job apply x\n", 3)
    assert json.loads(run(action, as_json=True).stdout) == {"name": "x", "parts": [1, 2]}


def test_lines_are_lines_or_objects():
    assert run(lambda shell: shell.line("a", pod="p")).stdout == "a\n"
    assert json.loads(run(lambda shell: shell.line("a", pod="p"), as_json=True).stdout) == {"line": "a", "pod": "p"}
    shown = run(lambda shell: shell.line("[0-0] a", line="a"), as_json=True).stdout
    assert json.loads(shown) == {"line": "a"}


def following(follow):
    def lines():
        yield "a"
        raise KeyboardInterrupt

    return lambda shell: show_lines(shell, contextlib.nullcontext(lines()), follow=follow)


def test_an_interrupt_is_the_end_of_what_is_followed_and_else_exits_with_130():
    assert (run(following(True)).exit_code, run(following(False)).exit_code) == (0, 130)


def test_a_question_needs_a_terminal():
    refused = run(lambda shell: shell.confirm("Delete x?"))
    assert isinstance(refused.exception, ConfigError)
    assert "Not done: Delete x?" in str(refused.exception)


def test_what_a_run_of_many_hosts_shows_goes_to_standard_error_if_the_output_is_for_a_program():
    def action(shell):
        with shell.live(lambda: None) as live:
            live.line("[0-0] a")
            live.finish(said("over", {"code": 0}))

    assert run(action).stdout == "[0-0] a\nover\n"
    for_a_program = run(action, as_json=True)
    assert (json.loads(for_a_program.stdout), for_a_program.stderr) == ({"code": 0}, "[0-0] a\n")


def test_an_error_after_a_result_leaves_the_result_as_it_is():
    def action(shell):
        with shell.live(lambda: None) as live:
            live.finish(said("1 host failed", {"code": 7}))
            raise RunFailed("r", Path("logs"), 7)

    assert json.loads(run(action, as_json=True).stdout) == {"code": 7}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a"), 1),
        (Contradiction("a"), 2),
        (CommandInterrupted("a"), 130),
        (RunFailed("r", Path("logs"), 7), 7),
    ],
)
def test_an_error_has_the_exit_code_of_its_kind(error, code, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr("pathways_jupyter.actions.sessions.ACTIONS", {"clean": fail})
    failed = CliRunner().invoke(main, ["clean"])
    assert (failed.exit_code, "Error" in failed.output) == (code, True)


def test_a_contradiction_says_what_to_do_about_it(monkeypatch):
    def fail(*_):
        raise Contradiction("One excludes the other.", hint=advice("Leave out {wait}, or see {job_list}."))

    monkeypatch.setattr("pathways_jupyter.actions.sessions.ACTIONS", {"clean": fail})
    said = " ".join(CliRunner().invoke(main, ["clean"]).output.split())
    assert "One excludes the other. Leave out --wait, or see pathways-jupyter job list." in said


@pytest.mark.parametrize(
    ("name", "instead"),
    [("events", "session.events()"), ("env", "session.environment()"), ("traceback", "pathways-jupyter --debug")],
)
def test_a_command_of_notebooks_names_what_does_the_same_elsewhere(name, instead):
    said = " ".join(CliRunner().invoke(main, [name]).output.split())
    assert f"{name} works in notebooks only: %pathways {name}." in said
    assert instead in said


def test_every_declared_command_has_an_action_and_is_listed():
    from pathways_jupyter.actions import action_of
    from pathways_jupyter.magics import notebook_commands

    # The magic itself shows its help, and the traceback of the cell before.
    for name in MAGIC.keys() - notebook_commands._COMMANDS.keys() - {"help", "traceback"}:
        assert callable(action_of(name)), name
    listed = main.list_commands(click.Context(main))
    assert len(listed) == len(set(listed))
    for name in TERMINAL:
        assert callable(action_of(name)), name
        assert name.partition(" ")[0] in listed
    for name in listed:
        assert main.get_command(click.Context(main), name) is not None, name
    assert {name.partition(" ")[0] for name in TERMINAL if " " in name} == set(GROUPS)


def test_a_command_of_magic_and_terminal_is_declared_once():
    for name in set(MAGIC) & set(TERMINAL) - {"elastic inject", "elastic heal"}:
        assert MAGIC[name] is TERMINAL[name]


def test_an_option_of_the_command_is_never_the_value_of_another():
    """It would be no dry run."""
    words = ["service", "deploy", "mine", "--tpu", "tpuv5e:4x4", "--worker-options"]
    refused = CliRunner().invoke(main, [*words, "--dry-run"])
    assert refused.exit_code == 2
    assert "'--worker-options' requires an argument" in refused.stderr
    assert "'--name' requires" in CliRunner().invoke(main, ["kernel", "add", "--name", "--json"]).stderr
