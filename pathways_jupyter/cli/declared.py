"""Make click's commands from the declarations of :mod:`pathways_jupyter.commands`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from pathways_jupyter.base import slow_answers
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.cli.terminal import TerminalShell
from pathways_jupyter.commands.declaration import JSON, Command, Source
from pathways_jupyter.commands.parameters import Completer, explicit, parameters
from pathways_jupyter.commands.tables import GROUPS, TERMINAL
from pathways_jupyter.render.view import View


def command(declared: Command) -> click.Command:
    """Return the command that `declared` declares, which runs its action and shows the result."""

    def run(**values: Any) -> None:
        # With the action, which loads what it needs: a line that is wrong is refused before that.
        from pathways_jupyter.actions import action_of, of_its_cluster

        terminal, given = TerminalShell(as_json=values.pop("json", False)), explicit(values)

        def act(shell: TerminalShell) -> View | None:
            with of_its_cluster(given):
                return action_of(declared.name)(shell, given)

        show(terminal, act)

    paragraphs = filter(None, (declared.summary, declared.details, declared.in_terminal))
    more = (JSON,) if declared.json and JSON not in declared.options else ()
    return click.Command(
        declared.name.rpartition(" ")[2],
        callback=run,
        params=parameters(declared, completing, more=more),
        short_help=declared.summary,
        help="\n\n".join(paragraphs),
        epilog=epilog(declared),
    )


def show(terminal: TerminalShell, action: Callable[[TerminalShell], View | None]) -> None:
    """Run an action, show its result, and exit with its code; raises its error, which programs get here."""
    from pathways_jupyter.actions.shell import INTERRUPTED

    try:
        with slow_answers.said_by(terminal.say):
            view = action(terminal)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except PathwaysError as error:
        terminal.fail(error)
        raise
    if view is not None:
        terminal.show(view)
        sys.exit(view.exit_code)


def group(
    name: str, callback: Callable[..., Any] | None = None, parameters: Sequence[click.Parameter] = ()
) -> click.Group:
    """Return the declared group `name` with its commands.

    Args:
      callback: What the group does itself; by default the command that has its name, if there is one.
      parameters: Of the callback.
    """
    members = [each for each in TERMINAL.values() if f"{each.name} ".startswith(f"{name} ")]
    if name in TERMINAL:
        own = command(TERMINAL[name])

        @click.pass_context
        def callback(context: click.Context, /, **values: Any) -> None:
            if context.invoked_subcommand is None:
                context.invoke(own, **values)

        parameters = own.params
    made = click.Group(
        name,
        help=GROUPS[name],
        epilog=examples(*(next(iter(each.examples or {})) for each in members[:3])),
        invoke_without_command=callback is not None,
        callback=callback,
        params=list(parameters),
    )
    for each in members:
        if each.name != name:
            made.add_command(command(each))
    return made


def epilog(declared: Command) -> str:
    """Return the examples of `declared`, for the end of its help."""
    return examples(*(f"{line}  # {purpose}" for line, purpose in (declared.examples or {}).items()))


def examples(*lines: str) -> str:
    """Return these command lines, without the program's name, as the examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  pathways-jupyter {line}" for line in lines) if lines else ""


def completing(source: Source) -> Completer:
    """Return the callback that completes a value from `source` in the shell."""

    def complete(context: click.Context, parameter: click.Parameter, fragment: str) -> list[CompletionItem]:
        if source is Source.FILES:
            return [CompletionItem(fragment, type="file")]
        from pathways_jupyter.actions import completion_values

        # An unreadable file is reported by the command itself; completion just offers nothing.
        with contextlib.suppress(PathwaysError, OSError):
            candidates = completion_values.values(
                source, kubeconfig=context.params.get("kubeconfig") or "", local=bool(context.params.get("local"))
            )
            return [CompletionItem(each) for each in candidates if each.startswith(fragment)]
        return []

    return complete
