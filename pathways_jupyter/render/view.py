"""A value with its renderings, so that a notebook can display it and a program can use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, repr=False)
class View:
    """A value that IPython can display.

    Attributes:
      value: The typed value that is rendered.
      text: For terminals and screen readers.
      html: For notebooks; safe in light and dark themes.
    """

    value: Any
    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}
