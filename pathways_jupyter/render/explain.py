"""Sections of the documentation: as Markdown in a notebook, and as text of the terminal's width elsewhere."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base import pages, project
from pathways_jupyter.base.pages import Section
from pathways_jupyter.base.sentences import Face, advice, worded
from pathways_jupyter.render.parts import code, line, spaced, table
from pathways_jupyter.render.view import View, drawn

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


def sections(found: Sequence[Section], face: Face) -> View:
    """Sections with their text; links lead to where they can be read."""
    parts = [f"**{each.title}**\n\n{_linked(each.text, face)}" for each in found]
    if address := project.page(f"docs/{found[0].page}.md"):
        parts.append(f"{address}#{found[0].topic}")
    source = "\n\n".join(parts)
    return Markdown(list(found), _plain(source), "", source=source)


def contents(found: Sequence[Section], face: Face) -> View:
    """Return the topics of sections, with their titles; of many, those whose title says no more share lines."""
    rows, others = [], dict[str, list[str]]()
    for each in found:
        if len(found) > _MOST_ROWS and (each.is_setting or pages.topic_of(each.title) == each.topic):
            others.setdefault("Settings" if each.is_setting else "Also", []).append(each.topic)
        else:
            rows.append((code(each.topic), each.title))
    shown = [table((), list(dict.fromkeys(rows)))]
    for title, names in sorted(others.items()):
        shown.append(spaced(line(f"{title}: {', '.join(dict.fromkeys(names))}.")))
    shown.append(spaced(line(worded(advice("{explain:TOPIC}"), face), "prints one.")))
    return drawn(list(found), *shown)


def _linked(text: str, face: Face) -> str:
    """Return Markdown whose links between pages name the command or the file that shows the other page."""

    def link(found: re.Match[str]) -> str:
        said, page, anchor = found.groups()
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
