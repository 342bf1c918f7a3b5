"""The data that declares a command: its words, its options, and where their values come from.

The options that several commands share are here as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from pathways_jupyter.base.config import SETTINGS, SettingSpec
from pathways_jupyter.base.sentences import Face


class ValueKind(Enum):
    """The kind of value that an option takes."""

    TEXT = "text"
    FLAG = "flag"
    NUMBER = "number"
    SECONDS = "seconds"
    """A number of seconds; the flag alone means no limit."""
    LIST = "list"
    """A string; the option may be repeated."""


class Source(Enum):
    """The source of an option's values for tab completion."""

    NOTHING = "nothing"
    INSTANCES = "instances"
    CONTEXTS = "contexts"
    PROFILES = "profiles"
    SERVICES = "services"
    SESSIONS = "sessions"
    COMMANDS = "commands"
    FILES = "files"
    SLICES = "slices"
    HOSTS = "hosts"
    TOPICS = "topics"
    CONTAINERS = "containers"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
      flag: Its spelling, e.g. ``--tpu``.
      name: The setting that it sets, by default the flag's words; a field of ConnectConfig where there is one.
      short: One-letter spelling, e.g. ``-f``.
      sets: What a flag sets, where another flag sets the opposite: ``true`` or ``false``.
      aliases: Other flags for the same setting, known from other tools; accepted, but not shown.
      default: The default, as shown in help.
    """

    flag: str
    help: str
    kind: ValueKind = ValueKind.TEXT
    name: str = ""
    metavar: str = ""
    short: str = ""
    source: Source = Source.NOTHING
    sets: str = ""
    aliases: tuple[str, ...] = ()
    default: str = ""

    def __post_init__(self) -> None:
        # Frozen for all but itself.
        object.__setattr__(self, "name", self.name or self.flag.lstrip("-").replace("-", "_"))


@dataclass(frozen=True)
class Word:
    """One positional argument.

    Attributes:
      choices: The allowed values; any if empty.
      many: Whether it takes all words that follow.
    """

    name: str
    help: str
    choices: tuple[str, ...] = ()
    source: Source = Source.NOTHING
    required: bool = False
    many: bool = False


@dataclass(frozen=True)
class Command:
    """One command with its arguments and examples.

    Attributes:
      examples: Command lines, without ``%pathways`` or ``pathways-jupyter``, and their purpose.
      details: Help text below the summary.
      in_terminal: More help in a terminal, such as exit codes; for a magic that has no command there, what has.
      rest: Name of the words after ``--``, which are not this package's; empty for a command that takes none.
      json: Whether ``--json`` has it print its result for programs.
      only: The one interface that has it; notebooks and terminals if None.
    """

    name: str
    summary: str
    options: tuple[Option, ...] = ()
    words: tuple[Word, ...] = ()
    examples: Mapping[str, str] | None = None
    details: str = ""
    in_terminal: str = ""
    rest: str = ""
    json: bool = True
    only: Face | None = None


def split(words: Sequence[str], commands: Mapping[str, Command]) -> tuple[str, Sequence[str]]:
    """Return the name of the command that `words` begin with, and the other words.

    A name of two words wins, so that a group may have a command of its own. The name may be of no command.
    """
    pair = " ".join(words[:2])
    return (pair, words[2:]) if len(words) > 1 and pair in commands else (words[0] if words else "", words[1:])


def group(name: str, commands: Mapping[str, Command]) -> tuple[str, ...]:
    """Return the second words of the commands of group `name`; none if there is no such group."""
    return tuple(each.partition(" ")[2] for each in commands if each.startswith(f"{name} "))


def _option_of(spec: SettingSpec) -> Option:
    """Return the option that sets a setting."""
    kind = ValueKind(spec.kind)
    return Option(
        spec.flag,
        f"{spec.about}; may be repeated" if kind is ValueKind.LIST else spec.about,
        kind,
        metavar=spec.metavar,
        short=spec.short,
        source=Source(spec.completion),
        aliases=(f"--{spec.alias.replace('_', '-')}",) if spec.alias else (),
        default=spec.shown,
    )


def assume_yes(about: str) -> Option:
    """Return the option that leaves out a command's question."""
    return Option("--yes", about, ValueKind.FLAG, short="-y")


SETTING_OPTIONS: Mapping[str, Option] = {name: _option_of(spec) for name, spec in SETTINGS.items()}
"""The options of all settings, by the setting's name."""
CLUSTER = tuple(SETTING_OPTIONS[name] for name, spec in SETTINGS.items() if spec.of == "cluster")
"""The options that select a cluster, the same for all commands."""
OF_NEXT_PROXY = (
    Option(
        "--wait",
        "wait for taken slices, for SECONDS or without limit",
        ValueKind.SECONDS,
        default="as it was connected",
    ),
    replace(SETTING_OPTIONS["tpu"], help="fewer or more slices of the same type, TYPE=COUNT", aliases=()),
)
"""The options for a session's next proxy."""
QUEUE = (SETTING_OPTIONS["queue"], SETTING_OPTIONS["priority"])
FOLLOW = Option("--follow", "keep printing new lines until interrupted", ValueKind.FLAG, short="-f")
PUSH = Option("--push", "push the built image to this repository", metavar="REPOSITORY")
DRY_BUILD = Option("--dry-run", "write the build context, and print the commands without running them", ValueKind.FLAG)
BUILDS_ELSEWHERE = (
    "Without docker or podman on this machine, the build context is written and the commands for another machine are "
    "printed."
)
"""Details of a command that builds an image."""
JSON = Option("--json", "print the result as JSON, or the error", ValueKind.FLAG)
HELP = Command(
    "help",
    "All commands, or one of them.",
    words=(Word("command", "which", source=Source.COMMANDS),),
    only=Face.NOTEBOOK,
)
"""The command ``help`` of every magic that has commands."""
