"""The command line: parse arguments, call the package, print the result.

Commands are imported when they are called, so that ``pathways-jupyter --help`` stays fast.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Mapping
from typing import Any

import click

from pathways_jupyter import interrupts, standard_streams
from pathways_jupyter.commands.magic import MAGIC
from pathways_jupyter.errors import PathwaysError
from pathways_jupyter.kube import claim_package
from pathways_jupyter.wording import Face, worded

_COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("local:demo", "Connect to two slices of the embedded cluster, break one, recover, clean up."),
    "run": ("run:run", "Run any JAX program on TPUs of its own; python train.py, unchanged."),
    "local": ("local:local", "The embedded cluster on this machine: up, down, status, kubeconfig."),
    "lab": ("lab:lab", "JupyterLab in the cluster: up, open, status, down."),
    "sessions": ("sessions:sessions", "Sessions on this machine; end one from here."),
    "slices": ("service:slices", "The service's slices, and who holds which since when."),
    "services": ("deploy:services", "Services that you may see: address, slices and users, image, age."),
    "service": ("deploy:service", "Deploy a service; follow its start, show it, delete it."),
    "job": ("job:job", "PathwaysJobs: new, apply, list, show, logs, suspend, resume, delete."),
    "elastic": ("elastic:elastic", "Faults on purpose in the slices of a session or a job: inject, heal."),
    "logs": ("service:logs", "The log of the resource manager, a worker or a session's proxy."),
    "usage": ("service:usage", "Who has held how many chip-hours, as far as the cluster still knows."),
    "doctor": ("service:doctor", "Check cluster, permissions, service, versions and leftovers."),
    "clean": ("sessions:clean", "Remove proxies whose owner is gone, and files of sessions that ended."),
    "multihost": ("multihost:multihost", "Run a command on many hosts: TPU VMs, a list of hosts, pods."),
    "operator": (
        "operator:operator",
        "The controller of PathwaysJobs and sweeper of dead sessions: run it, or print its manifests.",
    ),
    "network-policy": ("deploy:network_policy", "Print NetworkPolicies that close the ports of proxies and services."),
    "sidecar": ("sidecar:sidecar", "Build the image that runs %%colocated cells on TPU hosts."),
}


class Failure(click.ClickException):
    """An error of this package, shown as its message and its hint."""

    def __init__(self, error: PathwaysError) -> None:
        super().__init__(str(error))
        self.hint = error.advice(Face.TERMINAL)

    def show(self, file: Any = None) -> None:
        """Write message and hint to stderr."""
        # click's context, which holds the colour setting, is closed by now.
        click.echo(f"{click.style('Error', fg='red', bold=True)}: {self.message}", err=True, color=colours())
        if self.hint:
            click.echo(f"  {self.hint}", err=True)


def colours() -> bool | None:
    """Return False if NO_COLOR is set; None otherwise, so that click checks whether the output is a terminal."""
    return False if os.environ.get("NO_COLOR") else None


class _Commands(click.Group):
    """Loads a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help":
            raise click.UsageError("Write --help, also behind a command: pathways-jupyter slices --help.")
        if name in {"disconnect", "status"}:
            there = worded(f"%pathways {name}", Face.TERMINAL)
            raise click.UsageError(f"{name} works in notebooks only: %pathways {name}. Here, {there} does it.")
        if name in MAGIC and name.partition(" ")[0] not in _COMMANDS:
            raise click.UsageError(
                f"{name} works in notebooks only: %pathways {name}. In a script, call pathways_jupyter.connect()."
            )
        if name not in _COMMANDS and (close := difflib.get_close_matches(name, _COMMANDS, n=1)):
            raise click.UsageError(f"No such command {name!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with interrupts.after_imports():
                return super().invoke(ctx)
        except PathwaysError as error:
            if ctx.params.get("debug"):
                raise
            raise Failure(error) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pathways_jupyter", prog_name="pathways-jupyter")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
@click.pass_context
def main(context: click.Context, debug: bool) -> None:
    """Remote TPUs for notebooks: manage sessions, services and the embedded cluster.

    Connecting switches the JAX of a running process, so it is done in notebooks (%pathways connect) and scripts
    (pathways_jupyter.connect()); a whole program gets TPUs from here, with run.

    Exit codes: 0 success, 1 failure (the reason is on stderr), 2 invalid command line; other codes are listed in the
    help of their command.
    """
    standard_streams.open_closed()
    context.color = colours()
    claim_package()
