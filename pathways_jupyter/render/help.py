"""Help: what commands do, their options and examples; and sections of the documentation, as Markdown in a notebook and
as text of the terminal's width elsewhere.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base import pages, project
from pathways_jupyter.base.pages import Section
from pathways_jupyter.base.sentences import Face, advice, topic_of, worded
from pathways_jupyter.commands.declaration import Command, Option, ValueKind, Word
from pathways_jupyter.render.parts import Part, code, line, remarks, spaced, table
from pathways_jupyter.render.view import View, drawn


def overview(
    commands: Mapping[str, Command], program: str, *, cells: Sequence[Command] = (), whole: Command | None = None
) -> View:
    """All commands with their summaries, and each of the cell magics `cells` before the commands of its group.

    Args:
      whole: The cell magic whose own help is shown too, below.
    """
    rows = []
    left = {each.name: each for each in cells}
    for name, command in commands.items():
        group = name.partition(" ")[0]
        first = [each for each in left if each.endswith(group) or left[each] is whole]
        rows += [(code(each), left.pop(each).summary) for each in first]
        rows.append((code(f"{program} {name}"), command.summary))
    # They have no group among the commands.
    rows += [(code(cell.name), cell.summary) for cell in left.values()]
    ending = remarks([f"{program} COMMAND --help shows its options and examples."])
    about_cell = _parts(whole, "") if whole is not None else []
    return drawn(commands, table((), rows), spaced(ending), *map(spaced, about_cell[:1]), *about_cell[1:])


def command(declared: Command, program: str) -> View:
    """One command with its options and examples."""
    return drawn(declared, *_parts(declared, program))


def _parts(command: Command, program: str) -> list[Part]:
    # A cell magic is its own program.
    before = f"{program} " if program else ""
    usage = " ".join(
        [f"{before}{command.name}", *map(_usage, command.words), *(["[options]"] if command.options else [])]
    )
    takes = [(code(_usage(word)), word.help) for word in command.words]
    for option in command.options:
        also = f" (also {', '.join(option.aliases)})" if option.aliases else ""
        default = f"; default: {option.default}" if option.default else ""
        takes.append((code(_spelling(option)), f"{option.help}{default}{also}"))
    shown = [line(code(usage)), spaced(line(command.summary))]
    if command.details:
        shown.append(line(command.details))
    if takes:
        shown.append(spaced(table((), takes, indent="  ")))
    if command.examples:
        examples = [(f"{before}{typed}", purpose) for typed, purpose in command.examples.items()]
        # In text below each other: the lines to type are long.
        plain = "\n".join(f"  {typed}\n      {purpose}" for typed, purpose in examples)
        rich = table((), [(code(typed), purpose) for typed, purpose in examples]).html
        shown += [spaced(line("Examples:")), Part(plain, rich)]
    return shown


def _usage(word: Word) -> str:
    name = "|".join(word.choices) or word.name.upper()
    return name if word.required else f"[{name}]"


def _spelling(option: Option) -> str:
    flag = ", ".join(filter(None, (option.short, option.flag)))
    if option.kind is ValueKind.FLAG:
        return flag
    value = option.metavar or {ValueKind.NUMBER: "N", ValueKind.SECONDS: "SECONDS"}.get(option.kind, "TEXT")
    return f"{flag} [{value}]" if option.kind is ValueKind.SECONDS else f"{flag} {value}"


_WIDTH = 100
_MOST_ROWS = 20
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)#]*)#?([^)]*)\)")


@dataclass(frozen=True, repr=False)
class Markdown(View):
    """A text for people.

    Attributes:
      source: The Markdown, which every front end of notebooks shows.
    """

    source: str = ""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/markdown": self.source}


def sections(shown: Sequence[Section], face: Face) -> View:
    """Sections with their text; links lead to where they can be read."""
    parts = [f"**{each.title}**\n\n{_linked(each.text, face)}" for each in shown]
    if address := project.page(f"docs/{shown[0].page}.md"):
        parts.append(f"{address}#{shown[0].topic}")
    source = "\n\n".join(parts)
    return Markdown(list(shown), _plain(source), "", source=source)


def contents(listed: Sequence[Section], face: Face) -> View:
    """Return the topics of sections, with their titles; of many, those whose title says no more share lines."""
    rows, others = [], dict[str, list[str]]()
    for each in listed:
        if len(listed) > _MOST_ROWS and (each.is_setting or topic_of(each.title) == each.topic):
            others.setdefault("Settings" if each.is_setting else "Also", []).append(each.topic)
        else:
            rows.append((code(each.topic), each.title))
    shown = [table((), list(dict.fromkeys(rows)))]
    for title, names in sorted(others.items()):
        shown.append(spaced(line(f"{title}: {', '.join(dict.fromkeys(names))}.")))
    shown.append(spaced(line(worded(advice("{explain:TOPIC}"), face), "prints one.")))
    return drawn(list(listed), *shown)


def _linked(text: str, face: Face) -> str:
    """Return Markdown whose links between pages name the command or the file that shows the other page."""

    def link(match: re.Match[str]) -> str:
        said, page, anchor = match.groups()
        topic = anchor or page.removesuffix(".md")
        if topic in pages.topics() and page.removesuffix(".md") in {"", *pages.PAGES}:
            return f"{said} (`{worded(advice('{explain:{topic}}', topic=topic), face)}`)"
        path = f"docs/{page}{f'#{anchor}' if anchor else ''}"
        return f"[{said}]({address})" if (address := project.page(path)) else f"{said} ({path})"

    return _LINK.sub(link, text)


def _plain(source: str) -> str:
    from rich.console import Console
    from rich.markdown import Markdown as Rich

    console = Console(width=min(_WIDTH, shutil.get_terminal_size().columns), color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(Rich(source, hyperlinks=False))
    return "\n".join(each.rstrip() for each in captured.get().strip("\n").splitlines())
