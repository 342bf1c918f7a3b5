"""The cell magic ``%%pathwaysjob``, and tab completion of the fields in its cell."""

from __future__ import annotations

import re
from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class

from pathways_jupyter.commands.job import CELL_JOB
from pathways_jupyter.magics import completion, parser
from pathways_jupyter.magics.screen import Screen, shown

_MAGIC = f"%%{CELL_JOB.name}"
_FIELD = re.compile(r"^(?P<indent>\s*)(?P<item>- +)?(?P<key>\w+):(?P<value>.*)$")


@magics_class
class JobMagics(Magics):  # type: ignore[misc]
    """The cell magic of one shell."""

    @cell_magic  # type: ignore[untyped-decorator]
    def pathwaysjob(self, line: str, cell: str) -> Any:
        """Create the PathwaysJob that the cell describes; see ``%%pathwaysjob --help``."""
        call = parser.parse(f"{CELL_JOB.name} {line}", {CELL_JOB.name: CELL_JOB})
        if call.help:
            from pathways_jupyter.render import help as picture

            return shown(picture.command(CELL_JOB, "%%"))
        from pathways_jupyter.actions import job

        return shown(job.create(Screen(self.shell), cell, call.values, source="the cell"))


def matchers() -> list[Any]:
    """Tab completion for the magic's own line, and for the fields in its cell."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier=f"{_MAGIC}-fields-completer")  # type: ignore[untyped-decorator]
    def match(context: Any) -> dict[str, Any]:
        nothing = {"completions": [], "matched_fragment": "", "suppress": False}
        lines = context.full_text.split("\n")[: context.cursor_line + 1]
        if context.cursor_line == 0 or not lines[0].lstrip().startswith(_MAGIC):
            return nothing
        fragment, found = complete(lines[1:-1], context.text_until_cursor)
        return {
            "completions": [SimpleCompletion(each, type="field") for each in found or [fragment]],
            "matched_fragment": fragment,
            "ordered": True,
            "suppress": True,
        }

    return [completion.matcher(_MAGIC, {CELL_JOB.name: CELL_JOB}, command=CELL_JOB.name), match]


def complete(above: list[str], line: str) -> tuple[str, list[str]]:
    """Return what is being written in a cell's last line, and the fields or values that it may become.

    Args:
      above: The lines before it, without the magic's own.
    """
    from pathways_jupyter.service.pathwaysjob import yaml_text

    if written := _FIELD.match(line):
        indent = len(written["indent"]) + len(written["item"] or "")
        fragment = written["value"].lstrip()
        values = yaml_text.values_at([*_path(above, indent), written["key"]])
        return fragment, [each for each in values if each.startswith(fragment)]
    content = line.lstrip()
    indent = len(line) - len(content)
    if content.startswith("- "):
        indent, content = indent + 2, content[2:]
    fields = yaml_text.fields_at(_path(above, indent))
    suffix = {"value": ": ", "mapping": ":", "list": ":"}
    return content, [f"{name}{suffix[kind]}" for name, kind in fields.items() if name.startswith(content)]


def _path(above: list[str], indent: int) -> list[str]:
    """The fields around a line with that indentation, the outermost first."""
    path: list[str] = []
    for line in reversed(above):
        if (found := _FIELD.match(line)) is None:
            continue
        outer = len(found["indent"])
        # A list's dash may stand below its field's first letter, and its items' fields two further.
        inner = outer + len(found["item"] or "")
        if found["item"] and inner == indent:
            indent = outer + 1
            continue
        if inner < indent and not found["value"].strip():
            path.insert(0, found["key"])
            indent = inner
    return path
