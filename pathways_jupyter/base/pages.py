"""The pages of the documentation that are in the package: troubleshooting, settings and limits, by section.

They are the documentation's own files: links in a checkout, copies in a wheel. A section's topic stands above its
heading as ``(topic)=``, which makes it an anchor of the site too, or is made of its title. Each setting of a table is a
topic as well. What is no topic is searched in titles, then in the text: a word of an error leads to its section.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pathways_jupyter.base.sentences import topic_of

PAGES = ("troubleshooting", "settings", "limits")
_FOLDER = Path(__file__).parents[1] / "pages"
_HEADING = re.compile(r"(#+) (.+)")
_TARGET = re.compile(r"\((.+)\)=")
_MOST_FOUND = 8
"""Sections with a word in their text; one that more of them have says nothing."""


@dataclass(frozen=True)
class Section:
    """A section of a page, or a setting of a table in it.

    Attributes:
      topic: By what it is found; an anchor of the page, but for settings.
      level: Of its heading: 1 for the page's own.
      text: Markdown, without the heading.
    """

    page: str
    topic: str
    title: str
    level: int
    text: str

    @property
    def is_setting(self) -> bool:
        """Return whether it is a row of a table."""
        return "`" in self.title


@functools.cache
def sections() -> tuple[Section, ...]:
    """Return the sections of all pages, in their order."""
    return tuple(each for page in PAGES for each in _with_contents(tuple(_read(page))))


def topics() -> tuple[str, ...]:
    """Return the topics of all sections, each once."""
    return tuple(dict.fromkeys(each.topic for each in sections()))


def find(text: str) -> tuple[Section, ...]:
    """Return the sections with a topic; if it is none, those with all its words in their title, or else in the text.

    A setting may have the name of what fails, such as ``timeout``: then sections with the word in the title are added.
    """
    name = topic_of(text.rpartition(".")[2])
    named = tuple(each for each in sections() if each.topic == name)
    if not all(each.is_setting for each in named):
        return named
    words = [re.compile(rf"\b{re.escape(word)}", re.IGNORECASE) for word in re.findall(r"\w+", text)]
    for place in ("title", "text"):
        hits = tuple(each for each in sections() if words and all(word.search(getattr(each, place)) for word in words))
        hits = tuple(each for each in hits if not (named and each.is_setting))
        if named or 0 < len(hits) <= _MOST_FOUND:
            return named + hits
    return ()


def _read(page: str) -> Iterator[Section]:
    text = (_FOLDER / f"{page}.md").read_text(encoding="utf-8")
    target, fenced, lines = "", False, list[str]()
    now: Section | None = None
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else _HEADING.fullmatch(line)
        if heading:
            yield from _complete(now, lines)
            now = Section(page, target or topic_of(heading[2]), heading[2], len(heading[1]), "")
            target, lines = "", []
        elif not fenced and (named := _TARGET.fullmatch(line)):
            target = named[1]
        else:
            lines.append(line)
    yield from _complete(now, lines)


def _complete(section: Section | None, lines: Sequence[str]) -> Iterator[Section]:
    """Yield a section whose lines are known, then the settings of its tables."""
    if section is None:
        return
    yield replace(section, text="\n".join(lines).strip())
    heads: list[str] = []
    for line in lines:
        if not line.startswith("|"):
            heads = []
            continue
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        heads = heads or cells
        names = re.findall(r"`([\w.]+)`", cells[0]) if heads[0] == "setting" else ()
        for name in names:
            said = [f"{head.capitalize()}: {cell}." for head, cell in zip(heads[2:], cells[2:], strict=False) if cell]
            help_text = " ".join([f"{cells[1][:1].upper()}{cells[1][1:]}.", *said])
            yield Section(section.page, topic_of(name.rpartition(".")[2]), cells[0], section.level + 1, help_text)


def _with_contents(page: Sequence[Section]) -> Iterator[Section]:
    """Add to each section a list of those within it, without the settings of its tables."""
    for at, each in enumerate(page):
        end = next((index for index, one in enumerate(page) if index > at and one.level <= each.level), len(page))
        inner = [one for one in page[at + 1 : end] if one.level == each.level + 1 and not one.is_setting]
        listed = "\n".join(f"- `{one.topic}`: {one.title}" for one in inner)
        yield replace(each, text="\n\n".join(filter(None, (each.text, listed))))
