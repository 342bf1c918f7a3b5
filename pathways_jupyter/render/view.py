"""A value with its renderings, so that a notebook can display it and a program can use it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from pathways_jupyter.render import html


@dataclass(frozen=True, repr=False)
class View:
    """A value that IPython can display: the result of every command.

    Attributes:
      value: The typed value that is rendered; what a terminal prints as JSON.
      text: For terminals and screen readers.
      html: For notebooks; safe in light and dark themes.
      exit_code: Of the command in a terminal that shows this.
    """

    value: Any
    text: str
    html: str
    exit_code: int = 0

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}


def said(text: str, value: Any = None, exit_code: int = 0) -> View:
    """What was done, in a sentence; its value is `value`, by default the sentence."""
    return View(text if value is None else value, text, html.page(html.line(escape(text))), exit_code)


def preformatted(text: str, value: Any = None) -> View:
    """Text whose lines and columns stay as they are, such as a manifest; its value is `value`, by default the text."""
    return View(text if value is None else value, text.rstrip(), html.page(f"<pre>{escape(text)}</pre>"))
