"""Tab completion of a magic's line: commands, options, and values that are cheap to look up.

It runs on every press of Tab, so it only reads local files and never contacts a cluster.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pathways_jupyter.actions import completion_values
from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.commands.declaration import Command, Kind, Option, Source, group, split
from pathways_jupyter.session.kernel import process


def complete(text: str, commands: Mapping[str, Command]) -> tuple[str, list[str]]:
    """What may follow `text`, the part of the line before the cursor and after the magic's name.

    Returns:
      The fragment that would be replaced, and what may replace it.
    """
    *words, fragment = text.split(" ")
    words = [word for word in words if word]
    if not words:
        return fragment, _beginning(fragment, dict.fromkeys(name.partition(" ")[0] for name in commands))
    if len(words) == 2 and words[0] == "help" and "help" in commands:
        return fragment, _beginning(fragment, group(words[1], commands))
    name, rest = split(words, commands)
    command = commands.get(name)
    if command is None:
        return fragment, _beginning(fragment, group(name, commands)) if not rest else []
    words = [name, *rest]
    option = _awaiting(command, words[1:])
    if option is None and fragment.startswith("-") and "=" in fragment:
        flag, _, value = fragment.partition("=")
        option, fragment = _option(command, flag), value
    if option is not None:
        return _values(option.source, fragment, words)
    place = len(_places(command, words[1:]))
    offered: list[str] = []
    if place < len(command.words) and not fragment.startswith("-"):
        word = command.words[place]
        offered = list(word.choices) or _values(word.source, fragment, words)[1]
    used = {word.partition("=")[0] for word in words}
    flags = [each.flag for each in command.options if each.kind is Kind.LIST or not {each.flag, each.short} & used]
    # A command may have the name of its group.
    members = group(name, commands) if len(words) == 1 else ()
    return fragment, _beginning(fragment, [*offered, *members, *flags, "--help"])


def _awaiting(command: Command, words: list[str]) -> Option | None:
    """The option whose value comes next."""
    option = _option(command, words[-1]) if words else None
    return None if option is None or option.kind in {Kind.FLAG, Kind.SECONDS} else option


def _places(command: Command, words: list[str]) -> list[str]:
    """The words of a line that are neither options nor their values."""
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not word.startswith("-") and _awaiting(command, [before]) is None
    ]


def _option(command: Command, word: str) -> Option | None:
    return next(
        (option for option in command.options if word and word in {option.flag, option.short, *option.aliases}), None
    )


def _beginning(fragment: str, offered: Iterable[str]) -> list[str]:
    return [each for each in offered if each.startswith(fragment)]


def _values(source: Source, fragment: str, words: list[str]) -> tuple[str, list[str]]:
    if source is Source.INSTANCES:
        # Only the part after the last comma is being written.
        fragment = fragment.rpartition(",")[2]
        return fragment, _beginning(fragment, _instances(fragment))
    if source in {Source.SLICES, Source.HOSTS}:
        fragment = fragment.rpartition(",")[2]
    if source is Source.FILES:
        return fragment, _files(fragment)
    # The command itself reports a broken file; completion offers nothing.
    with contextlib.suppress(PathwaysError, OSError):
        if source in _SOURCES:
            return fragment, _beginning(fragment, _SOURCES[source](words))
        kubeconfig = dict(itertools.pairwise(words)).get("--kubeconfig", "")
        found = completion_values.values(source, kubeconfig=kubeconfig, local="--local" in words)
        return fragment, _beginning(fragment, found)
    return fragment, []


def _instances(fragment: str) -> list[str]:
    """TPU versions first, then the topologies of the chosen version."""
    version, separator, _ = fragment.partition(":")
    if not separator:
        return [f"{machine.version}:" for machine in tpu.MACHINES]
    return [
        f"{version}:{topology}="
        for machine in tpu.MACHINES
        if version in {machine.version, machine.name}
        for topology in machine.topologies
    ]


def _files(fragment: str) -> list[str]:
    """Files and directories whose path begins with `fragment`, in the same spelling."""
    directory, _, beginning = fragment.rpartition("/")
    place = Path(f"{directory}/" if "/" in fragment else ".").expanduser()
    with contextlib.suppress(OSError):
        found = sorted(entry for entry in place.iterdir() if entry.name.startswith(beginning))
        visible = [entry for entry in found if beginning or not entry.name.startswith(".")]
        spelled = f"{directory}/" if "/" in fragment else ""
        return [f"{spelled}{entry.name}{'/' if entry.is_dir() else ''}" for entry in visible]
    return []


def _commands(words: list[str]) -> list[str]:
    from pathways_jupyter.commands.magic import MAGIC

    return list(MAGIC)


def _slices(words: list[str]) -> list[str]:
    """Slices as the command numbers them: `logs` uses the service's numbers, `colocated` uses JAX's."""
    if process.session() is None:
        return []
    if words[0].startswith("elastic"):
        return _held()
    if words[0] != "logs":
        return [str(number) for number in sorted({host.slice for host in _all_hosts()})]
    if "worker" not in words:
        return []
    return _held()


def _held() -> list[str]:
    """The session's slices by the service's numbers."""
    session = process.session()
    known = {each.number for each in session.record.slices} if session is not None else set()
    return [str(number) for number in sorted(each for each in known if each is not None)]


def _hosts(words: list[str]) -> list[str]:
    return [str(host.index) for host in _all_hosts()] if process.session() is not None else []


def _all_hosts() -> Sequence[Any]:
    from pathways_jupyter.colocated.host import hosts

    return hosts()


def _host_commands(words: list[str]) -> list[str]:
    from pathways_jupyter.commands.colocated import LINE

    return list(LINE)


_SOURCES: Mapping[Source, Callable[[list[str]], list[str]]] = {
    Source.COMMANDS: _commands,
    Source.SLICES: _slices,
    Source.HOSTS: _hosts,
    Source.HOST_COMMANDS: _host_commands,
}


_ASSIGNMENT = re.compile(r"^[\w.,\s]+=\s*(?=%)")


def matcher(magic: str, commands: Mapping[str, Command], *, command: str = "") -> Any:
    """A matcher for IPython's completer that completes lines beginning with `magic`, e.g. ``%pathways``.

    Args:
      command: The only command, for a magic whose line does not name one.
    """
    from IPython.core.completer import SimpleCompletion, context_matcher

    def match(context: Any) -> dict[str, Any]:
        line = _ASSIGNMENT.sub("", context.text_until_cursor.lstrip())
        head, separator, text = line.partition(" ")
        if head not in {magic, magic.lstrip("%")} or not separator:
            return {"completions": [], "matched_fragment": "", "suppress": False}
        fragment, found = complete(f"{command} {text}".lstrip(), commands)
        if not found and head == magic:
            # Python's names never apply here, but IPython only lets a matcher suppress them if it returns a
            # completion. The existing fragment is one that changes nothing.
            found = [fragment]
        return {
            "completions": [SimpleCompletion(each, type="magic") for each in found],
            "matched_fragment": fragment,
            "ordered": True,
            "suppress": bool(found),
        }

    return context_matcher(identifier=f"{magic}-completer")(match)
