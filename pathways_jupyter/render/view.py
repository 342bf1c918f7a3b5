"""A value with its renderings, so that a notebook can display it and a program can use it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.printable import printable
from pathways_jupyter.render import parts
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
    part = parts.stacked(*shown)
    # What puts a text together without building blocks is filtered here.
    return View(value, printable(part.text.strip("\n"), lines=True), page(part.html))


def listing(value: Any, *shown: Part, none: str, note: str = "") -> View:
    """Return a list as `shown`, and when it is drawn.

    Args:
      none: What to say instead where `value` is empty.
      note: A limitation of the view, shown beside its time.
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


def for_programs(value: Any) -> View:
    """Return `value` as JSON, which ``--json`` shows."""
    return drawn(value, parts.verbatim(as_json(value)))


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """Return `value` as JSON: dataclasses become objects, paths and dates strings."""
    return json.dumps(value, default=_plain, indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def preformatted(text: str, value: Any = None) -> View:
    """Text whose lines and columns stay as they are, such as a manifest; its value is `value`, by default the text."""
    part = parts.verbatim(text)
    return View(text if value is None else value, part.text, page(part.html))


_STYLE = {
    "": """
.pathways-jupyter {
  --pw-ok: var(--jp-success-color1, #2e9e5b); --pw-wait: var(--jp-warn-color1, #c77c02);
  --pw-fail: var(--jp-error-color1, #d64545); --pw-mine: var(--jp-brand-color1, #3b82d6); --pw-none: #8a8a8a;
  --pw-line: var(--jp-border-color2, color-mix(in srgb, currentColor 25%, transparent));
  --pw-fill: var(--jp-layout-color2, color-mix(in srgb, currentColor 7%, transparent));
  color: var(--jp-ui-font-color1, var(--vscode-foreground, inherit));
  font: 13px/1.5 var(--jp-ui-font-family, system-ui, sans-serif); max-width: 60rem;
}
.pathways-jupyter .pw-muted { opacity: .72; }
.pathways-jupyter .pw-tone { color: var(--pw-tone); font-weight: 600; white-space: nowrap; }
.pathways-jupyter .pw-ok { --pw-tone: var(--pw-ok); }
.pathways-jupyter :is(.pw-wait, .pw-warn) { --pw-tone: var(--pw-wait); }
.pathways-jupyter .pw-fail { --pw-tone: var(--pw-fail); } .pathways-jupyter .pw-none { --pw-tone: var(--pw-none); }
""",
    "pw-head": """
.pathways-jupyter .pw-head { display: flex; flex-wrap: wrap; gap: .25rem .6rem; align-items: baseline; }
.pathways-jupyter .pw-head b { font-size: 14px; }
""",
    "pw-card": """
.pathways-jupyter .pw-card {
  border: 1px solid var(--pw-line); border-left: 3px solid var(--pw-tone, var(--pw-line)); border-radius: 4px;
  padding: .5rem .8rem; margin: .25rem 0; background: transparent;
}
.pathways-jupyter .pw-card.pw-none .pw-map { filter: grayscale(1); }
""",
    "pw-table": """
.pathways-jupyter table.pw-table {
  border-collapse: collapse; margin: .35rem 0 .1rem; font-size: 13px; border: 0; color: inherit;
}
.pathways-jupyter table.pw-table th, .pathways-jupyter table.pw-table td {
  text-align: left; padding: .12rem 1.1rem .12rem 0; border: 0; vertical-align: top; background: transparent;
  color: inherit; max-width: 34rem; white-space: nowrap;
}
.pathways-jupyter table.pw-table td.pw-long { white-space: normal; min-width: 9em; overflow-wrap: anywhere; }
.pathways-jupyter .pw-scroll { overflow-x: auto; }
.pathways-jupyter table.pw-table th { font-weight: 600; opacity: .72; }
.pathways-jupyter table.pw-table tr { background: transparent !important; }
""",
    "<code": """
.pathways-jupyter code { background: var(--pw-fill); color: inherit; padding: .05rem .3rem; border-radius: 3px; }
""",
    "pw-map": """
.pathways-jupyter .pw-map { display: flex; flex-wrap: wrap; gap: .5rem; margin: .45rem 0 .1rem; }
.pathways-jupyter .pw-slice {
  border: 1px solid var(--pw-line); border-top: 3px solid var(--pw-tone); border-radius: 4px;
  padding: .3rem .55rem .45rem; min-width: 7.5rem; max-width: 22rem;
}
.pathways-jupyter .pw-slice .pw-tone { white-space: normal; overflow-wrap: anywhere; }
.pathways-jupyter .pw-of-this { box-shadow: 0 0 0 2px var(--pw-mine); }
.pathways-jupyter .pw-of-other { box-shadow: 0 0 0 1px var(--pw-none); }
.pathways-jupyter .pw-hosts { display: flex; flex-wrap: wrap; gap: .3rem; margin-top: .3rem; }
.pathways-jupyter .pw-host { background: var(--pw-fill); border-radius: 3px; padding: .25rem; display: grid; gap: 3px; }
.pathways-jupyter .pw-chip {
  width: 12px; height: 12px; border-radius: 2px; box-sizing: border-box;
  border: 1.5px solid var(--pw-tone); background: transparent;
}
.pathways-jupyter .pw-held .pw-chip { background: var(--pw-tone); }
.pathways-jupyter .pw-kept .pw-chip { background: linear-gradient(45deg, var(--pw-tone) 50%, transparent 50%); }
.pathways-jupyter .pw-kept { border-style: solid dotted dotted; }
.pathways-jupyter .pw-slice.pw-fail { border-style: solid dashed dashed; }
.pathways-jupyter .pw-host.pw-wait .pw-chip { border-style: dashed; }
.pathways-jupyter .pw-host.pw-fail .pw-chip {
  background: linear-gradient(45deg, transparent 43%, var(--pw-tone) 43% 57%, transparent 57%),
    linear-gradient(-45deg, transparent 43%, var(--pw-tone) 43% 57%, transparent 57%);
}
""",
}
"""Rules by the name that an output contains when it needs them; "" is for every output."""


def page(body: str) -> str:
    """Return a whole output: `body` with its style sheet.

    Colours are the theme's own where there is one (JupyterLab and VS Code set variables) and otherwise derive from the
    text colour, so nothing assumes a light or a dark page. A front end that strips ``<style>``, as JupyterLab does with
    the output of a notebook that is not trusted, still shows readable tables and lists.

    Each output is saved in the notebook's file on its own, so each carries its own style, limited to the rules that it
    uses.
    """
    style = "\n".join(rules.strip() for name, rules in _STYLE.items() if name in body)
    return f'<div class="pathways-jupyter"><style>{style}</style>{body}</div>'
