"""Groups that have more than is declared: ``multihost`` the flags of multihost_runner.py, which replace a command, and
``operator`` its program, which parses its own options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from pathways_jupyter.cli import declared
from pathways_jupyter.cli.terminal import TerminalShell

_SEEDS = {
    "TPU_PREFIX": "tpu_prefix",
    "SCRIPT_DIR": "directory",
    "RUN_NAME": "name",
    "PROJECT": "project",
    "ZONE": "zone",
}
_UNUSED = "SCP_TIMEOUT_SECS"
_SWITCHES = {"USE_EXISTING_FOLDER": "existing", "INTERNAL_IP": "internal_ip"}


def _run_flags(context: click.Context, /, COMMAND: str | None, SCP_TIMEOUT_SECS: int | None, **values: Any) -> None:
    """Run the command of the flags in capitals."""
    named = {_SEEDS.get(name) or _SWITCHES[name]: value for name, value in values.items() if value is not None}
    if context.invoked_subcommand is not None:
        if named or COMMAND or SCP_TIMEOUT_SECS:
            raise click.UsageError("The flags in capitals replace a command; leave one of them out.")
        return
    if COMMAND is None and named:
        raise click.UsageError("Which command? Add --COMMAND.")
    if COMMAND is None:
        click.echo(context.get_help())
        return
    from pathways_jupyter.actions import multihost as actions

    # As in the script: a host that gcloud has made is new to this machine, and tmp is not sent.
    fixed = {"accept_new": True, "exclude": ("tmp",)}
    terminal = TerminalShell()
    if SCP_TIMEOUT_SECS is not None:
        terminal.say(f"{_UNUSED} is not used: what is sent may take as long as bytes arrive.")
    declared.show(terminal, lambda terminal: actions.start(terminal, {**fixed, **named}, COMMAND))


_HELP = "As in multihost_runner.py."
multihost = declared.group(
    "multihost",
    click.pass_context(_run_flags),
    # Each takes a value, also those that are switches.
    [
        *(click.Option([f"--{flag}", flag], metavar="VALUE", help=_HELP) for flag in ("COMMAND", *_SEEDS)),
        click.Option([f"--{_UNUSED}", _UNUSED], type=click.INT, metavar="SECONDS", help="Accepted, and not used."),
        *(click.Option([f"--{flag}", flag], type=click.BOOL, help=_HELP) for flag in _SWITCHES),
    ],
)
operator = declared.group("operator")


@operator.command(
    short_help="Run it until stopped.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: Sequence[str]) -> None:
    """Run it until stopped."""
    from pathways_jupyter.operator import main as program

    # It has its own parser because the embedded cluster runs it as a pod, without this command line.
    sys.exit(program.main(list(arguments)))
