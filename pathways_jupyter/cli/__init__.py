"""The command line: parse arguments, run an action, print its result.

Commands are imported when they are called, so that ``pathways-jupyter --help`` stays fast. Most are made from their
declarations, by :mod:`.declared`; :mod:`.run` and :mod:`.groups` have what only a terminal does.
"""

from __future__ import annotations

import difflib
from typing import Any

import click

from pathways_jupyter.base import process_setup
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.cli.terminal import colours
from pathways_jupyter.commands.session import RUN
from pathways_jupyter.commands.tables import GROUPS, MAGIC, TERMINAL
from pathways_jupyter.kube import claim_package

_FIRST = ("demo", "run", "local", "lab", "sessions", "slices")
"""Commands that a newcomer looks for; in the list of all, they come before the others, as these are declared."""
_NAMES = tuple(dict.fromkeys((*_FIRST, *(name.partition(" ")[0] for name in TERMINAL))))


class CliError(click.ClickException):
    """An error of this package, shown as its message and its hint."""

    def __init__(self, error: PathwaysError) -> None:
        super().__init__(str(error))
        self.hint = error.advice(Face.TERMINAL)
        # Such as that of a command that has failed on a host.
        self.exit_code = getattr(error, "exit_code", 1)  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        """Write message and hint to stderr."""
        # click's context, which holds the colour setting, is closed by now.
        click.echo(f"{click.style('Error', fg='red', bold=True)}: {self.message}", err=True, color=colours())
        if self.hint:
            click.echo(f"  {self.hint}", err=True)


class _Commands(click.Group):
    """Loads a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "run":
            from pathways_jupyter.cli.run import run

            return run
        if cmd_name in {"multihost", "operator"}:
            from pathways_jupyter.cli import groups

            return groups.multihost if cmd_name == "multihost" else groups.operator
        from pathways_jupyter.cli import declared

        if cmd_name in GROUPS:
            return declared.group(cmd_name)
        return declared.command(TERMINAL[cmd_name]) if cmd_name in TERMINAL else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help":
            raise click.UsageError("Write --help, also behind a command: pathways-jupyter slices --help.")
        if name in MAGIC and name not in _NAMES:
            raise click.UsageError(
                f"{name} works in notebooks only: %pathways {name}. "
                + (MAGIC[name].in_terminal or "In a script, call pathways_jupyter.connect().")
            )
        if name not in _NAMES and (close := difflib.get_close_matches(name, _NAMES, n=1)):
            raise click.UsageError(f"No such command {name!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = {"run": RUN.summary, **GROUPS}
        rows = [(name, (summaries.get(name) or TERMINAL[name].summary).partition("\n")[0]) for name in _NAMES]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PathwaysError as error:
            if ctx.params.get("debug"):
                raise
            from pathways_jupyter.actions.shell import Contradiction

            if not isinstance(error, Contradiction):
                raise CliError(error) from error
            raise click.UsageError(f"{error} {worded(error.hint, Face.TERMINAL)}".rstrip()) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pathways_jupyter", prog_name="pathways-jupyter")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
@click.pass_context
def main(context: click.Context, debug: bool) -> None:
    """Remote TPUs for notebooks: manage sessions, services and the embedded cluster.

    Connecting switches the JAX of a running process, so it is done in notebooks (%pathways connect) and scripts
    (pathways_jupyter.connect()); a whole program gets TPUs from here, with run.

    Exit codes: 0 success, 1 failure (the reason is on stderr), 2 invalid command line; other codes are listed in the
    help of their command. With --json, the reason of a failure without a result is the last line of stdout:
    {"error": {"type", "message", "hint", "topic"}}, where explain prints the topic.
    """
    process_setup.open_closed_streams()
    context.color = colours()
    claim_package()
