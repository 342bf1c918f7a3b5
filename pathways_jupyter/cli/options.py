"""Build click options from the shared declarations of commands, and print results."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from pathways_jupyter import offers
from pathways_jupyter.commands.declaration import JSON, Command, Kind, Option, Source
from pathways_jupyter.errors import PathwaysError
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

INTERRUPTED = 130
"""The exit code of a command that an Interrupt has ended."""
_COLOURS = {Mark.OK: "green", Mark.WARN: "yellow", Mark.FAIL: "red", Mark.WAIT: "yellow"}


def takes(about: Command, *, as_json: bool = True) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds the words and options of `about`, and ``--json``."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed((*about.options, *((JSON,) if as_json else ()))):
            function = _option(option)(function)
            for alias in option.aliases:
                function = click.option(alias, alias.lstrip("-").replace("-", "_"), hidden=True)(function)
        for word in reversed(about.words):
            kind = click.Choice(word.choices) if word.choices else None
            tab = None if word.choices else completing(word.source)
            function = click.argument(word.name, required=word.required, type=kind, shell_complete=tab)(function)
        return function

    return decorate


def epilog(about: Command) -> str:
    """Return the examples of `about`, for the end of its help."""
    lines = [f"  pathways-jupyter {line}  # {purpose}" for line, purpose in (about.examples or {}).items()]
    return "\b\nExamples:\n" + "\n".join(lines) if lines else ""


def examples(*lines: str) -> str:
    """Return these command lines, without the program's name, as the examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  pathways-jupyter {line}" for line in lines)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without the options that were not given."""
    return {name: value for name, value in values.items() if value not in (None, False, ())}


def show(view: View, *, as_json: bool) -> None:
    """Print a result as text or as JSON."""
    if as_json:
        show_json(view.value)
        return
    for line in view.text.splitlines():
        colour = _COLOURS.get(line.lstrip()[:1])  # type: ignore[call-overload]
        mark = line[: len(line) - len(line.lstrip()) + 1]
        click.echo(click.style(mark, fg=colour) + line[len(mark) :] if colour else line)


def show_json(value: Any, *, indent: int | None = 2) -> None:
    """Print `value` as JSON: dataclasses become objects, paths and dates strings."""
    click.echo(json.dumps(value, default=_plain, indent=indent, allow_nan=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def _option(option: Option) -> Callable[[Decorated], Decorated]:
    spellings = [*filter(None, (option.short, option.flag)), option.name]
    default = f"; default: {option.default}" if option.default else ""
    text = f"{option.help[:1].upper()}{option.help[1:]}{default}."
    if option.kind is Kind.FLAG:
        return click.option(*spellings, is_flag=True, help=text)
    if option.kind is Kind.LIST:
        tab = completing(option.source)
        return click.option(*spellings, multiple=True, metavar=option.metavar or None, help=text, shell_complete=tab)
    if option.kind is Kind.SECONDS:
        return click.option(*spellings, is_flag=False, flag_value=str(option.implied), metavar="[SECONDS]", help=text)
    metavar = option.metavar or ("N" if option.kind is Kind.NUMBER else None)
    return click.option(*spellings, metavar=metavar, help=text, shell_complete=completing(option.source))


def completing(source: Source) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the callback that completes a value from `source` in the shell."""

    def complete(context: click.Context, parameter: click.Parameter, fragment: str) -> list[CompletionItem]:
        if source is Source.FILES:
            return [CompletionItem(fragment, type="file")]
        given = context.params
        found: list[str] = []
        # An unreadable file is reported by the command itself; completion just offers nothing.
        with contextlib.suppress(PathwaysError, OSError):
            if source is Source.CONTEXTS:
                found = offers.contexts(given.get("kubeconfig") or "")
            elif source is Source.PROFILES:
                found = offers.profiles()
            elif source is Source.SERVICES:
                found = offers.services(local=bool(given.get("local")))
            elif source is Source.SESSIONS:
                found = offers.sessions()
            elif source is Source.RUNS:
                found = offers.runs()
            elif source is Source.JOBS:
                found = offers.jobs()
            elif source is Source.HEADLESS_JOBS:
                found = offers.jobs(headless=True)
        return [CompletionItem(each) for each in found if each.startswith(fragment)]

    return complete
