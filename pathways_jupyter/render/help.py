"""Help for commands: what they do, their options, and examples."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from pathways_jupyter.commands.declaration import Command, Kind, Option, Word
from pathways_jupyter.render import html, text
from pathways_jupyter.render.view import View


def overview(commands: Mapping[str, Command], program: str) -> View:
    """All commands with their summaries."""
    rows = [(f"{program} {command.name}", command.summary) for command in commands.values()]
    ending = f"{program} COMMAND --help shows its options and examples."
    rich = [(html.code(name), escape(summary)) for name, summary in rows]
    plain = f"{text.table(('', ''), rows)}\n\n{ending}"
    return View(commands, plain, html.page(html.table((), rich), html.line(html.muted(ending))))


def command(about: Command, program: str) -> View:
    """One command with its options and examples."""
    usage = " ".join([program, about.name, *map(_place, about.words), *(["[options]"] if about.options else [])])
    takes = [(_place(word), word.help) for word in about.words]
    takes += [(_spelling(option), _purpose(option)) for option in about.options]
    examples = [(f"{program} {line}", purpose) for line, purpose in (about.examples or {}).items()]
    said = list(filter(None, (about.summary, about.details)))
    plain = [usage, "", *said]
    rich = [html.line(html.code(usage)), *(html.line(escape(each)) for each in said)]
    if takes:
        plain += ["", text.table(("", ""), takes, indent="  ")]
        rich.append(html.table(("option", "what it does"), [(html.code(name), escape(help)) for name, help in takes]))
    if examples:
        plain += ["", "Examples:", *(f"  {line}\n      {purpose}" for line, purpose in examples)]
        rich.append(html.table(("example", ""), [(html.code(line), escape(purpose)) for line, purpose in examples]))
    return View(about, "\n".join(plain), html.page(*rich))


def _place(word: Word) -> str:
    name = "|".join(word.choices) or word.name.upper()
    return name if word.required else f"[{name}]"


def _purpose(option: Option) -> str:
    also = f" (also {', '.join(option.aliases)})" if option.aliases else ""
    return f"{option.help}{f'; default: {option.default}' if option.default else ''}{also}"


def _spelling(option: Option) -> str:
    flag = ", ".join(filter(None, (option.short, option.flag)))
    if option.kind is Kind.FLAG:
        return flag
    value = option.metavar or {Kind.NUMBER: "N", Kind.SECONDS: "SECONDS"}.get(option.kind, "TEXT")
    return f"{flag} [{value}]" if option.kind is Kind.SECONDS else f"{flag} {value}"
