"""Building blocks of views. Each has two forms, plain text and HTML, which say the same in the same words.

Where a building block takes words, a string is escaped in HTML; only what these functions return is markup. Characters
that would act on a terminal, or turn the writing around, are replaced in both, because words may come from a cluster.
"""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pathways_jupyter.base.printable import printable
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.render import text

_LONG_CELL = 20
"""A cell with more characters may be broken into lines."""
_LONG_WORD = 30
"""The same for a cell that is a word, which would be broken between two letters, as "StartupPolicyComplete d"."""
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|d|[kMG]B)\b)")


@dataclass(frozen=True)
class Part:
    """A part of a view: some words, or lines of their own. An empty form is left out."""

    text: str
    html: str


Words = Part | str


def _part(words: Words, *, lines: bool = False) -> Part:
    if isinstance(words, Part):
        return words
    shown = printable(words, lines=lines)
    return Part(shown, escape(shown))


def toned(tone: Tone, words: str = "") -> Part:
    """Words in the colour of `tone`; its mark when left out."""
    part = _part(words or tone.mark)
    return Part(part.text, f'<span class="pw-tone pw-{tone}">{part.html}</span>')


def once(tone: Tone, now: str, then: str) -> Part:
    """Words for a state that may end without a trace in the output: `now` in text.

    In HTML `then`, what stays true, without colour. The sidebar's page knows whether it is still so: it shows `now`, in
    the colour of `tone`, in a card that :func:`card` has marked as alive.
    """
    looks, shown = f"pw-tone pw-none pw-once pw-once-{tone}", _part(now)
    return Part(shown.text, f'<span class="{looks}" title="{shown.html}">{_part(then).html}</span>')


def muted(words: str) -> Part:
    """Less prominent words."""
    part = _part(words)
    return Part(part.text, f'<span class="pw-muted">{part.html}</span>' if words else "")


def code(words: str) -> Part:
    """Something to type or an exact name."""
    part = _part(words)
    return Part(part.text, f"<code>{part.html}</code>")


def joined(*words: Words) -> Part:
    """Words after each other, with nothing between them."""
    parts = list(map(_part, words))
    return Part("".join(each.text for each in parts), "".join(each.html for each in parts))


def line(*words: Words) -> Part:
    """Words on a line of their own; a string may have several, which HTML shows on one."""
    parts = [_part(each, lines=True) for each in words]
    rich = " ".join(each.html for each in parts if each.html)
    return Part(" ".join(each.text for each in parts if each.text), f"<div>{rich}</div>")


def remarks(lines: Sequence[str]) -> Part:
    """Less prominent lines."""
    parts = list(map(muted, lines))
    return Part("\n".join(each.text for each in parts), "".join(line(each).html for each in parts))


def verbatim(words: str) -> Part:
    """Text whose lines and columns stay as they are."""
    shown = printable(words, lines=True)
    return Part(shown.rstrip(), f"<pre>{escape(shown)}</pre>")


def table(headers: Sequence[str], rows: Sequence[Sequence[Words]], *, indent: str = "") -> Part:
    """Return a table; without any header, there is no line of headers.

    In HTML, only long cells are broken into lines, but not after each word: a number keeps its unit. What is too wide
    scrolls.
    """
    parts = [list(map(_part, row)) for row in rows]
    titles = list(map(_part, headers))
    above = "".join(f'<th scope="col">{each.html}</th>' for each in titles) if any(headers) else ""
    body = ""
    for row in parts:
        body += "<tr>"
        for cell in row:
            if len(cell.text) <= (_LONG_WORD if cell.text.isalnum() else _LONG_CELL):
                body += f"<td>{cell.html}</td>"
            else:
                # What may be copied into a shell keeps its spaces.
                rich = cell.html if "<code" in cell.html else _BEFORE_UNIT.sub("&nbsp;", cell.html)
                body += f'<td class="pw-long">{rich}</td>'
        body += "</tr>"
    top = f"<thead><tr>{above}</tr></thead>" if above else ""
    return Part(
        text.table([each.text for each in titles], [[cell.text for cell in row] for row in parts], indent=indent),
        f'<div class="pw-scroll"><table class="pw-table">{top}<tbody>{body}</tbody></table></div>' if rows else "",
    )


def fields(pairs: Sequence[tuple[str, str]]) -> Part:
    """Names and values below each other, indented; pairs without a value are left out."""
    return table(("", ""), [(muted(name), value) for name, value in pairs if value], indent="  ")


def head(title: str, *details: Words, mark: str = "") -> Part:
    """Return a title with `details`; in text, `mark` is in front of it."""
    parts = [part for part in map(_part, details) if part.html]
    beside = "".join(f"<span>{each.html}</span>" for each in parts)
    said = ", ".join(each.text for each in parts)
    above = _part(title)
    plain = f"{mark} {above.text}".lstrip() + (f": {said}" if said else "")
    return Part(plain, f'<div class="pw-head"><b>{above.html}</b>{beside}</div>')


def card(tone: Tone, *parts: Part, live: str = "") -> Part:
    """Parts below each other; in HTML, in a frame with an edge in the colour of `tone`.

    Args:
      live: The session whose present state this is. The edge has its colour only where a page knows that it lives.
    """
    inside = stacked(*parts)
    looks = f"pw-none pw-once-{tone} pw-live-{escape(live)}" if live else f"pw-{tone}"
    return Part(inside.text, f'<div class="pw-card {looks}">{inside.html}</div>')


def stacked(*parts: Part) -> Part:
    """Parts below each other."""
    return Part("\n".join(each.text for each in parts if each.text), "".join(each.html for each in parts))


def indented(part: Part) -> Part:
    """In text, `part` two columns to the right."""
    return Part(textwrap.indent(part.text, "  "), part.html)


def spaced(part: Part) -> Part:
    """In text, `part` below an empty line."""
    return Part(f"\n{part.text}" if part.text else "", part.html)


def share_bar(title: str, times: Sequence[tuple[str, str, float]]) -> Part:
    """In HTML, times as parts of one bar with its legend; what is below a thousandth of the whole is left out.

    Args:
      times: Name, colour and seconds of each part.
    """
    total = sum(seconds for _, _, seconds in times)
    cells, legend = "", ""
    for name, colour, seconds in times:
        share = seconds / total if total else 0.0
        if share < 0.001:
            continue
        label = _part(f"{name} {share:.1%}" + (f" ({text.duration(seconds)})" if seconds >= 0.05 else ""))
        cells += f'<span title="{label.html}" style="flex:{share:.4f};min-width:1px;background:{colour}"></span>'
        swatch = f"display:inline-block;width:9px;height:9px;border-radius:2px;background:{colour}"
        legend += f'<span style="white-space:nowrap"><span style="{swatch}"></span> {muted(label.text).html}</span>'
    return Part(
        "",
        f'<div role="img" aria-label="{_part(title).html}" style="display:flex;height:12px;border-radius:3px;'
        f'overflow:hidden;margin:.5rem 0 .3rem">{cells}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:.1rem .9rem">{legend}</div>',
    )


def as_of(note: str = "") -> Part:
    """In HTML, when the view is drawn, as a saved notebook may be read much later.

    Args:
      note: Another limitation of the view, which is shown in text as well.
    """
    return Part(_part(note).text, line(muted(f"As of {text.moment(time.time())}{'. ' if note else ''}{note}")).html)
