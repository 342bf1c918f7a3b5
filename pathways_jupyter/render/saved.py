"""Saves as text and pictures."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pathways_jupyter.base.text import count, size, some
from pathways_jupyter.render.parts import line, remarks, table
from pathways_jupyter.render.text import duration
from pathways_jupyter.render.view import View, drawn, listing
from pathways_jupyter.saved.saves import Save


def saved(save: Save) -> View:
    """Return what was saved, and what was left out."""
    what = f"Saved as {save.name}: {count(len(save.variables), 'variable')}, {size(save.nbytes)}."
    return drawn(save, line(what), remarks([f"Left out: {each}" for each in save.unkept]))


def loaded(name: str, variables: Sequence[str]) -> View:
    """Return the variables that were set."""
    return drawn(variables, line(f"Loaded {name}: {some(variables) or 'no variables'}."))


def listed(saves: Sequence[Save]) -> View:
    """Return the saves of a user."""
    rows = [
        [
            each.name,
            size(each.nbytes) if each.saved else "",
            f"{duration(max(0.0, time.time() - each.saved))} ago" if each.saved else "",
            each.notebook,
            some(each.variables) if each.saved else " ".join(each.unkept),
        ]
        for each in saves
    ]
    headers = ("Name", "Size", "Saved", "Notebook", "Variables")
    return listing(list(saves), table(headers, rows), none="There are no saves in the bucket.")
