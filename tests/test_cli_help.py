"""Help of the command line, and its answers to a command line that is wrong."""

import json

import click
import pytest
from click.testing import CliRunner

from pathways_jupyter.cli import main


def commands(command=main, path=()):
    """Every command and group, by the words that lead to it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if not (found := command.get_command(context, name)).hidden:
                yield from commands(found, (*path, name))


COMMANDS = [(path, command) for path, command in commands() if path]


def run(*arguments):
    return CliRunner().invoke(main, arguments, prog_name="pathways-jupyter")


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=" ".join)
def test_each_command_has_a_whole_summary_and_an_example(path):
    listed = run(*path[:-1], "--help").output.partition("Commands:")[2]
    assert f"  {path[-1]} " in listed
    assert "..." not in listed, "cut off"
    if path == ("operator", "run"):
        # It runs as a pod too, and so has a parser of its own.
        return
    shown = run(*path, "--help").output
    assert shown.startswith("Usage:")
    assert "Examples:" in shown, "no example"
    assert f"  pathways-jupyter {' '.join(path)}" in shown


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lokal up", "No such command 'lokal'. Did you mean 'local'?"),
        ("slice", "No such command 'slice'. Did you mean 'slices'?"),
        ("xyzzy", "No such command 'xyzzy'."),
        ("help", "Write --help, also behind a command"),
        ("status", "Here, pathways-jupyter sessions does it."),
        ("disconnect", "Here, pathways-jupyter sessions disconnect does it."),
        ("connect", "In a script, call pathways_jupyter.connect()."),
    ],
)
def test_a_command_that_there_is_not_leads_to_one_that_there_is(line, said):
    done = run(*line.split())
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("command", ["slices", "services", "doctor", "logs", "clean", "saved"])
def test_a_command_that_only_looks_does_not_claim_to_start_the_embedded_cluster(command):
    shown = run(command, "--help").output
    assert "--context" in shown
    assert "started when" not in " ".join(shown.split())
    assert "started when needed" in " ".join(run("run", "--help").output.split())


@pytest.mark.parametrize("nodes", ["foo", "10.0.0.0/99", "10.1.2.3/8"])
def test_a_policy_for_addresses_that_are_no_range_is_refused(nodes):
    done = run("network-policy", "--service", "team", "--nodes", nodes)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"'{nodes}' is not an address range" in done.output


def test_each_command_has_json_but_those_that_print_what_they_run():
    without = {
        " ".join(path)
        for path, command in COMMANDS
        if not isinstance(command, click.Group) and not any("--json" in each.opts for each in command.params)
    }
    assert without == {"run", "operator run"}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("network-policy", "List"),
        ("manifests roles pathways-jupyter-user", "List"),
        ("job new train --tpu tpuv6e:2x2=1", "PathwaysJob"),
    ],
)
def test_what_is_written_for_kubectl_is_an_object_for_programs(line, kind):
    done = run(*line.split(), "--json")
    assert (done.exit_code, json.loads(done.stdout)["kind"]) == (0, kind)
    refused = run("network-policy", "--service", "x", "--json")
    assert refused.exit_code
    assert json.loads(refused.stdout)["error"]
