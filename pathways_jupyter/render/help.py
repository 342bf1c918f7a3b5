"""Help for commands: what they do, their options, and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    for name, about in commands.items():
        group = name.partition(" ")[0]
        first = [each for each in left if each.endswith(group) or left[each] is whole]
        rows += [(code(each), left.pop(each).summary) for each in first]
        rows.append((code(f"{program} {name}"), about.summary))
    # They have no group among the commands.
    rows += [(code(cell.name), cell.summary) for cell in left.values()]
    ending = remarks([f"{program} COMMAND --help shows its options and examples."])
    about_cell = _parts(whole, "") if whole is not None else []
    return drawn(commands, table((), rows), spaced(ending), *map(spaced, about_cell[:1]), *about_cell[1:])


def command(about: Command, program: str) -> View:
    """One command with its options and examples."""
    return drawn(about, *_parts(about, program))


def _parts(about: Command, program: str) -> list[Part]:
    # A cell magic is its own program.
    before = f"{program} " if program else ""
    usage = " ".join([f"{before}{about.name}", *map(_place, about.words), *(["[options]"] if about.options else [])])
    takes = [(code(_place(word)), word.help) for word in about.words]
    for option in about.options:
        also = f" (also {', '.join(option.aliases)})" if option.aliases else ""
        default = f"; default: {option.default}" if option.default else ""
        takes.append((code(_spelling(option)), f"{option.help}{default}{also}"))
    shown = [line(code(usage)), spaced(line(about.summary))]
    if about.details:
        shown.append(line(about.details))
    if takes:
        shown.append(spaced(table((), takes, indent="  ")))
    if about.examples:
        examples = [(f"{before}{typed}", purpose) for typed, purpose in about.examples.items()]
        # In text below each other: the lines to type are long.
        plain = "\n".join(f"  {typed}\n      {purpose}" for typed, purpose in examples)
        rich = table((), [(code(typed), purpose) for typed, purpose in examples]).html
        shown += [spaced(line("Examples:")), Part(plain, rich)]
    return shown


def _place(word: Word) -> str:
    name = "|".join(word.choices) or word.name.upper()
    return name if word.required else f"[{name}]"


def _spelling(option: Option) -> str:
    flag = ", ".join(filter(None, (option.short, option.flag)))
    if option.kind is ValueKind.FLAG:
        return flag
    value = option.metavar or {ValueKind.NUMBER: "N", ValueKind.SECONDS: "SECONDS"}.get(option.kind, "TEXT")
    return f"{flag} [{value}]" if option.kind is ValueKind.SECONDS else f"{flag} {value}"
