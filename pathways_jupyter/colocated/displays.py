"""Safe forms of a host's displays: nothing in them runs in the page.

A page that shows a host's HTML runs its scripts with the rights of the notebook's user, and these include running code
in the kernel. So HTML is written anew from a list of elements that only lay text out, a drawing becomes a picture,
which runs no scripts, and other kinds are left out; their text stays.
"""

from __future__ import annotations

import base64
import contextlib
import html
from collections.abc import Mapping
from html.parser import HTMLParser

_PICTURES = frozenset({"image/png", "image/jpeg"})
_ELEMENTS = frozenset(
    {
        *("table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td"),
        *("div", "span", "p", "br", "hr", "pre", "code", "b", "strong", "i", "em", "u", "s", "small"),
        *("sub", "sup", "ul", "ol", "li", "dl"),
        *("dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "details", "summary"),
    }
)
_DEEPEST = 500
"""Open elements; an end tag is looked for among all of them."""
_VOID = frozenset({"br", "hr", "col"})
_ATTRIBUTES = frozenset(
    {"class", "colspan", "rowspan", "align", "valign", "halign", "border", "title", "scope", "open"}
)
_WITHOUT_TEXT = frozenset(
    {"script", "style", "template", "title", "head", "noscript", "iframe", "object", "svg", "math"}
)


def harmless(data: Mapping[str, str | bytes]) -> dict[str, str | bytes]:
    """Return what of a display, by MIME type, runs nothing in a page."""
    safe: dict[str, str | bytes] = {"text/plain": str(data["text/plain"])} if "text/plain" in data else {}
    for kind in _PICTURES.intersection(data):
        picture = data[kind]
        # Text that is not base64 would be markup in a page that puts it into the picture's address as it is.
        with contextlib.suppress(ValueError):
            if isinstance(picture, str):
                picture = base64.b64decode("".join(picture.split()), validate=True)
            safe[kind] = picture
    page, drawing = data.get("text/html"), data.get("image/svg+xml")
    if isinstance(page, str):
        cleaner = _Cleaner()
        cleaner.feed(page)
        # Not close(): of a tag that does not end, it would search the rest of the page again from each "<".
        cleaner.handle_data(html.unescape(cleaner.rawdata))
        safe["text/html"] = cleaner.text()
    elif drawing is not None:
        raw = drawing if isinstance(drawing, bytes) else drawing.encode()
        safe["text/html"] = f'<img src="data:image/svg+xml;base64,{base64.b64encode(raw).decode()}">'
    return safe


class _Cleaner(HTMLParser):
    """Writes HTML anew: known elements with known attributes, all other text escaped."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[str] = []
        self._open: list[str] = []
        self._silent: list[str] = []

    def text(self) -> str:
        """Return what was read so far, every element closed."""
        return "".join(self._written) + "".join(f"</{each}>" for each in reversed(self._open))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _WITHOUT_TEXT and len(self._silent) < _DEEPEST:
            self._silent.append(tag)
        if self._silent or tag not in _ELEMENTS or len(self._open) >= _DEEPEST:
            return
        attributes = "".join(f' {name}="{html.escape(value or "")}"' for name, value in attrs if name in _ATTRIBUTES)
        self._written.append(f"<{tag}{attributes}>")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        elif not self._silent and tag in self._open:
            while (last := self._open.pop()) != tag:
                self._written.append(f"</{last}>")
            self._written.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._written.append(html.escape(data, quote=False))
