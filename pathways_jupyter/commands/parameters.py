"""A declared command's words and options as parameters of click, which reads the lines of terminals and notebooks.

Imported when a line is read, as click takes a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from pathways_jupyter.base.text import capitalized
from pathways_jupyter.commands.declaration import Command, Option, Source, ValueKind

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


class _Option(click.Option):
    """An option whose value is never an option of its command: ``--name --dry-run`` would be no dry run."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        own = {flag for each in ctx.command.get_params(ctx) for flag in each.opts if flag.startswith("-")}
        if own & set(value if isinstance(value, (tuple, list)) else (value,)):
            raise click.BadOptionUsage(self.opts[-1], f"Option {self.opts[-1]!r} requires an argument.", ctx)
        return super().process_value(ctx, value)


def parameters(
    spec: Command,
    complete: Callable[[Source], Completer | None] = lambda source: None,
    *,
    more: Sequence[Option] = (),
    rest: bool = True,
) -> list[click.Parameter]:
    """Return the words and options of `spec`.

    Args:
      complete: Returns what completes a value from a source.
      more: Options after its own.
      rest: Whether what is not this package's is an argument, too.
    """
    made: list[click.Parameter] = [
        click.Argument(
            [word.name],
            required=word.required,
            nargs=-1 if word.many else 1,
            type=click.Choice(word.choices) if word.choices else None,
            shell_complete=None if word.choices else complete(word.source),
        )
        for word in spec.words
    ]
    if spec.rest and rest:
        made.append(click.Argument([spec.rest], nargs=-1, type=click.UNPROCESSED))
    for option in (*spec.options, *more):
        # An alias gets its own name, so that two spellings with different values can be detected.
        made += (_Option([each], hidden=True) for each in option.aliases)
        made.append(_option(option, complete))
    return made


def explicit(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without the options that were not given."""
    return {name: value for name, value in values.items() if value not in (None, False, ())}


def _option(option: Option, complete: Callable[[Source], Completer | None]) -> click.Option:
    spellings = [*filter(None, (option.short, option.flag)), option.name]
    default = f"; default: {option.default}" if option.default else ""
    text = f"{capitalized(option.help)}{default}."
    if option.sets:
        return _Option(spellings, flag_value=option.sets, help=text)
    if option.kind is ValueKind.FLAG:
        return _Option(spellings, is_flag=True, help=text)
    if option.kind is ValueKind.SECONDS:
        return _Option(spellings, is_flag=False, flag_value="inf", metavar="[SECONDS]", help=text)
    return _Option(
        spellings,
        multiple=option.kind is ValueKind.LIST,
        metavar=option.metavar or ("N" if option.kind is ValueKind.NUMBER else None),
        help=text,
        shell_complete=complete(option.source),
    )
