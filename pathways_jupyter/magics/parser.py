"""Parse a magic's line, as a terminal's is, and run it or show its help.

The commands are declared in :mod:`pathways_jupyter.commands`; what is wrong in a line is a
:class:`~pathways_jupyter.base.errors.ConfigError` with the closest valid spelling as the hint.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.commands.declaration import HELP, Command, group, split
from pathways_jupyter.magics.screen import shown

_MOST_LISTED = 12
# What is quoted comes first: it has none.
_COMMENT = re.compile(r"""("[^"]*"|'[^']*')|(?:^|\s)#.*$""")
# {"tpuv6e:2x2": 2} is one word even without quotation marks.
_DICTIONARY = re.compile(r"""(?<!['"{])\{[^{}]*\}(?!['"}])""")
_HELP_FLAGS = {"-h", "--help"}


@dataclass(frozen=True)
class ParsedLine:
    """A parsed line.

    Attributes:
      command: The command it names; `HELP` also where ``--help`` asks for the help of another, which is then a value.
      values: Its options and words by name; only those that were given.
    """

    command: Command
    values: Mapping[str, Any]


def run(
    line: str,
    commands: Mapping[str, Command],
    program: str,
    act: Callable[[str, Mapping[str, Any]], Any],
    *,
    cells: Sequence[Command] = (),
) -> Any:
    """Run a magic's line, or show the help that it asks for; return what the cell shows.

    Interrupts are counted meanwhile, as commands print: one that no wait has raised is raised when the command ends.

    Args:
      commands: Those that the line may name.
      program: The magic, for help.
      act: Runs the command of a name, with the values of its options and words.
      cells: The cell magics that are listed with the commands.

    Raises:
      ConfigError: The line cannot be parsed; nothing was done.
    """
    call = parse(line, commands)
    if call.command is not HELP:
        with interrupts.defer_sigint():
            return shown(act(call.command.name, call.values))
    from pathways_jupyter.render import help as render

    name = call.values.get("command", "")
    if name in commands:
        return shown(render.command(commands[name], program))
    members = {each: declared for each, declared in commands.items() if name and each.startswith(f"{name} ")}
    if name and not members:
        raise _unknown(name, commands)
    # The one that is called as the magic or the group is, with one more %.
    own = next((each for each in cells if each.name in {f"%{program}", f"%{program} {name}"}), None)
    listed = [each for each in cells if not name or each is own or each.name == f"%%{name}"]
    return shown(render.overview(members or commands, program, cells=listed, whole=own))


def run_cell(line: str, command: Command, act: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Run a cell magic, which is one command with its options on the first line; as :func:`run`."""
    return run(f"{command.name} {line}", {command.name: command}, "", lambda _, values: act(values))


def parse(line: str, commands: Mapping[str, Command]) -> ParsedLine:
    """Parse `line`, which begins with a command's name; an empty line means ``help``, and a comment may follow.

    Raises:
      ConfigError: The line cannot be parsed; nothing was done.
    """
    head, after = divide(line, commands)
    words, program = _words(head), _words(after, program=True)
    if not words or words[0] in {"help", *_HELP_FLAGS}:
        return ParsedLine(HELP, {"command": " ".join(word for word in words[1:] if word not in _HELP_FLAGS)})
    name, rest = split(words, commands)
    if _HELP_FLAGS & set(rest):
        return ParsedLine(HELP, {"command": name})
    if name not in commands and rest[:1] == ["help"]:
        return ParsedLine(HELP, {"command": " ".join([name, *rest[1:]])})
    if name not in commands:
        raise _unknown(" ".join([name, *rest[:1]]), commands)
    command = commands[name]
    values = _values(command, rest)
    if program:
        values[command.rest] = program
    return ParsedLine(command, values)


def divide(line: str, commands: Mapping[str, Command]) -> tuple[str, str]:
    """Return what of `line` is the command's, and what after `` -- `` is a program's, whatever signs it has."""
    declared = commands.get(split(line.split(), commands)[0])
    head, _, after = f"{line} ".partition(" -- ") if declared is not None and declared.rest else (line, "", "")
    return head, after


def _words(text: str, *, program: bool = False) -> list[str]:
    """Return the words of `text`; of a program's line all, and else without a comment."""
    if not program:
        # A semicolon at the end is IPython's own word for "do not show the result", which it reads from the cell.
        text = _COMMENT.sub(lambda match: match[1] or "", text).rstrip().removesuffix(";")
        text = _DICTIONARY.sub(lambda match: shlex.quote(match[0]), text)
    try:
        return shlex.split(text)
    except ValueError as error:
        is_open = "quotation" in str(error)
        hint = "Close the quotation mark." if is_open else "Remove the backslash at its end, or write it twice."
        raise ConfigError(f"The line cannot be read: {error}.", hint=hint) from None


def _values(command: Command, words: Sequence[str]) -> dict[str, Any]:
    """Return what `words` give of a command's words and options."""
    import click

    from pathways_jupyter.commands.parameters import explicit, parameters

    reader = click.Command(command.name, params=parameters(command, rest=False), add_help_option=False)
    try:
        with reader.make_context(command.name, list(words), allow_extra_args=True) as context:
            extra, values = context.args, explicit(context.params)
    except click.NoSuchOption as error:
        extra = [error.option_name]
    except click.UsageError as error:
        # Without its cause, which adds nothing to the message.
        said = error.message if type(error) is click.BadParameter else error.format_message()
        raise ConfigError(said, hint=f"See {command.name} --help.") from None
    if extra:
        flags = [option.flag for option in command.options]
        raise ConfigError(f"{command.name} does not take {extra[0]!r}.", hint=_nearest(extra[0], flags, command.name))
    return values


def _unknown(name: str, commands: Mapping[str, Command]) -> ConfigError:
    """Return the error about `name`, which no command has: a word, or a group's name and a word."""
    first, _, second = name.partition(" ")
    if members := group(first, commands):
        said = f"There is no command {name}." if second else f"{first} needs one of its commands."
        return ConfigError(said, hint=_nearest(second, members))
    return ConfigError(f"There is no command {first!r}.", hint=_nearest(first, tuple(commands)))


def _nearest(word: str, candidates: Sequence[str], command: str = "") -> str:
    word = word.partition("=")[0]
    # Two-letter words that differ in one letter have a similarity of 0.5.
    close = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6 if len(word) > 3 else 0.5)
    see = f"See {command} --help." if command else f"There are: {', '.join(candidates)}."
    if len(candidates) > _MOST_LISTED and not command:
        see = "The command help lists all of them."
    return f"Did you mean {close[0]}? {see}" if close else see
