"""A value with its renderings, so that a notebook can display it and a program can use it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.render import html, parts
from pathways_jupyter.render.parts import Part


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


def drawn(value: Any, *shown: Part) -> View:
    """`value` as `shown`, part below part."""
    whole = parts.stacked(*shown)
    return View(value, whole.text.strip("\n"), html.page(whole.html))


def listing(value: Any, *shown: Part, none: str, note: str = "") -> View:
    """Return a list as `shown`, and when it is drawn.

    Args:
      none: What to say instead where `value` is empty.
      note: A limitation of the picture, shown beside its time.
    """
    return drawn(value, *(shown if value else [parts.remarks([none])]), parts.as_of(note))


def said(text: str, value: Any = None) -> View:
    """Return a sentence about what was done; its value is `value`, by default the sentence."""
    return drawn(text if value is None else value, parts.line(text))


def for_kubectl(objects: Iterable[Mapping[str, Any]]) -> View:
    """Objects for kubectl: as YAML documents, or as one List for programs."""
    import yaml

    # Copied, so that nothing is there twice: YAML would have anchors, which not every tool that reads manifests knows.
    items = json.loads(json.dumps(list(objects)))
    return preformatted(
        yaml.safe_dump_all(items, sort_keys=False), {"apiVersion": "v1", "kind": "List", "items": items}
    )


def preformatted(text: str, value: Any = None) -> View:
    """Text whose lines and columns stay as they are, such as a manifest; its value is `value`, by default the text."""
    return View(text if value is None else value, text.rstrip(), html.page(parts.verbatim(text).html))
