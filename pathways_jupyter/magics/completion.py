"""Tab completion of a magic's line: commands, options, and values that are cheap to look up.

It runs on every press of Tab, so it only reads local files and never contacts a cluster.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pathways_jupyter.actions import completion_values
from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.text import parse_path
from pathways_jupyter.commands.declaration import Command, Option, Source, ValueKind, group, split
from pathways_jupyter.session.kernel import process


def complete(text: str, commands: Mapping[str, Command]) -> tuple[str, list[str]]:
    """Return what may follow `text`, the part of the line before the cursor and after the magic's name.

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
    option = _option_of_value(command, words[-1])
    if option is None and fragment.startswith("-") and "=" in fragment:
        flag, _, value = fragment.partition("=")
        option, fragment = _option(command, flag), value
    if option is not None:
        return _values(option.source, fragment, words)
    # The words so far that are neither options nor their values.
    index = sum(
        not word.startswith("-") and _option_of_value(command, before) is None
        for before, word in itertools.pairwise(words)
    )
    offered: list[str] = []
    if index < len(command.words) and not fragment.startswith("-"):
        word = command.words[index]
        if word.source is Source.COMMANDS:
            offered = list(commands)
        else:
            offered = list(word.choices) or _values(word.source, fragment, words)[1]
    used = {word.partition("=")[0] for word in words}
    flags = [each.flag for each in command.options if each.kind is ValueKind.LIST or not {each.flag, each.short} & used]
    # A command may have the name of its group.
    members = group(name, commands) if len(words) == 1 else ()
    return fragment, _beginning(fragment, [*offered, *members, *flags, "--help"])


def _option_of_value(command: Command, before: str) -> Option | None:
    """Return the option whose value follows the word `before`."""
    option = _option(command, before)
    return None if option is None or option.kind in {ValueKind.FLAG, ValueKind.SECONDS} else option


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
        if source is Source.SLICES:
            values = _slices(words)
        elif source is Source.HOSTS:
            values = _hosts()
        else:
            kubeconfig = dict(itertools.pairwise(words)).get("--kubeconfig", "")
            values = completion_values.values(source, kubeconfig=kubeconfig, local="--local" in words)
        return fragment, _beginning(fragment, values)
    return fragment, []


def _instances(fragment: str) -> list[str]:
    """TPU versions first, then the topologies of the chosen version."""
    version, separator, _ = fragment.partition(":")
    if not separator:
        return list(dict.fromkeys(f"{machine.version}:" for machine in tpu.MACHINES))
    instances = (
        f"{version}:{topology}="
        for machine in tpu.MACHINES
        if version in {machine.version, machine.name}
        for topology in machine.topologies
    )
    return list(dict.fromkeys(instances))


def _files(fragment: str) -> list[str]:
    """Files and directories whose path begins with `fragment`, in the same spelling."""
    directory, _, beginning = fragment.rpartition("/")
    parent = parse_path(f"{directory}/" if "/" in fragment else ".")
    with contextlib.suppress(OSError):
        entries = sorted(entry for entry in parent.iterdir() if entry.name.startswith(beginning))
        visible = [entry for entry in entries if beginning or not entry.name.startswith(".")]
        spelled = f"{directory}/" if "/" in fragment else ""
        return [f"{spelled}{entry.name}{'/' if entry.is_dir() else ''}" for entry in visible]
    return []


def _slices(words: list[str]) -> list[str]:
    """Slices as the command numbers them: `logs` and `elastic` use the service's numbers, `colocated` uses JAX's."""
    session = process.session()
    if session is None or (words[0] == "logs" and "worker" not in words):
        return []
    if words[0] == "logs" or words[0].startswith("elastic"):
        return [str(each) for each in sorted(each.number for each in session.record.slices if each.number is not None)]
    from pathways_jupyter.colocated.host import hosts

    return [str(number) for number in sorted({host.slice for host in hosts()})]


def _hosts() -> list[str]:
    if process.session() is None:
        return []
    from pathways_jupyter.colocated.host import hosts

    return [str(host.index) for host in hosts()]


_ASSIGNMENT = re.compile(r"^[\w.,\s]+=\s*(?=%)")


def matcher(magic: str, commands: Mapping[str, Command]) -> Any:
    """Return a matcher for IPython's completer that completes lines beginning with `magic`, e.g. ``%pathways``."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    # A cell magic is the only command of its line, which does not name it again.
    command = magic if magic in commands else ""

    def match(context: Any) -> dict[str, Any]:
        line = _ASSIGNMENT.sub("", context.text_until_cursor.lstrip())
        head, separator, text = line.partition(" ")
        if head not in {magic, magic.lstrip("%")} or not separator:
            return {"completions": [], "matched_fragment": "", "suppress": False}
        fragment, matches = complete(f"{command} {text}".lstrip(), commands)
        if not matches and head == magic:
            # Python's names never apply here, but IPython only lets a matcher suppress them if it returns a
            # completion. The existing fragment is one that changes nothing.
            matches = [fragment]
        return {
            "completions": [SimpleCompletion(each, type="magic") for each in matches],
            "matched_fragment": fragment,
            "ordered": True,
            "suppress": bool(matches),
        }

    return context_matcher(identifier=f"{magic}-completer")(match)
