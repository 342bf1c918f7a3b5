"""Tab completion of the fields in a cell of ``%%pathwaysjob``."""

from __future__ import annotations

import re
from typing import Any

from pathways_jupyter.commands.job import CELL

_FIELD = re.compile(r"^(?P<indent>\s*)(?P<item>- +)?(?P<key>\w+):(?P<value>.*)$")


def matcher() -> Any:
    """Return a matcher for IPython's completer."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier=f"{CELL.name}-fields-completer")  # type: ignore[untyped-decorator]
    def match(context: Any) -> dict[str, Any]:
        nothing = {"completions": [], "matched_fragment": "", "suppress": False}
        lines = context.full_text.split("\n")[: context.cursor_line + 1]
        if context.cursor_line == 0 or not lines[0].lstrip().startswith(CELL.name):
            return nothing
        fragment, found = complete(lines[1:-1], context.text_until_cursor)
        return {
            "completions": [SimpleCompletion(each, type="field") for each in found or [fragment]],
            "matched_fragment": fragment,
            "ordered": True,
            "suppress": True,
        }

    return match


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
