"""The command line: what it prints, to whom, and with which exit code."""

import json
import socket

import pytest

from pathways_jupyter.cli import main

COMMANDS = ["demo", "local", "sessions", "slices", "logs", "doctor", "clean"]


def test_help_names_every_command(machine):
    shown = machine.cli("--help")
    assert shown.returncode == 0
    assert all(f"  {name} " in shown.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    from click.testing import CliRunner

    shown = CliRunner().invoke(main, [name, "--help"])
    assert shown.exit_code == 0
    assert shown.output.startswith("Usage:")


@pytest.mark.parametrize("name", ["slices", "logs", "doctor", "clean"])
def test_commands_about_a_cluster_show_examples_and_take_json(name):
    from click.testing import CliRunner

    shown = CliRunner().invoke(main, [name, "--help"]).output
    assert f"pathways-jupyter {name}" in shown
    assert "--json" in shown
    assert "--context" in shown


def test_an_error_is_on_stderr_with_its_hint_and_no_colours(machine):
    failed = machine.cli("slices", "--kubeconfig", "/nowhere")
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.splitlines()[0] == "Error: There is no kubeconfig /nowhere."
    assert len(failed.stderr.splitlines()) == 2
    assert "\x1b" not in failed.stderr


def test_a_line_that_cannot_be_read_exits_with_2(machine):
    assert machine.cli("sessions", "--colour").returncode == 2
    assert machine.cli("nonsense").returncode == 2


def test_sessions_are_listed_for_people_and_for_programs(machine):
    assert machine.cli("sessions").stdout.strip() == "No sessions on this machine."
    assert json.loads(machine.cli("sessions", "--json").stdout) == []


def test_ending_a_session_that_is_not_there_says_so(machine):
    failed = machine.cli("sessions", "disconnect", "4f2a")
    assert failed.returncode == 1
    assert "no session" in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--tpu", "tpuv6e:3x3"], "no topology"),
        (["--tpu", "tpuv6e:2x2=2", "--slices", "2"], "Leave one"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(machine, arguments, word):
    failed = machine.cli("local", "up", *arguments)
    assert failed.returncode == 1
    assert word in failed.stderr


def test_a_cluster_that_does_not_run_has_a_status_of_its_own(machine):
    status = machine.cli("local", "status", "--name", "another")
    assert (status.returncode, machine.cli("local", "status", "--name", "another", "--json").stdout) == (3, "null\n")
    assert "pathways-jupyter local up" in status.stdout


def test_a_port_that_is_taken_is_told_and_leaves_no_cluster(machine):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = machine.cli("local", "up", "--name", "taken", "--port", str(port))
    assert failed.returncode == 1
    assert str(port) in failed.stderr
    assert len(failed.stderr.splitlines()) <= 2
    assert machine.cli("local", "status", "--name", "taken").returncode == 3
