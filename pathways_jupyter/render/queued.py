"""Queued resources and their TPU VMs as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape

from pathways_jupyter.multihost.queued_resources import Queued
from pathways_jupyter.render import html, text, words
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View

_HEADERS = ("", "name", "state", "tier", "type", "nodes", "")


def view(found: Sequence[Queued]) -> View:
    """The table."""
    if not found:
        none = "There are no queued resources in this zone."
        return View([], none, html.page(html.line(html.muted(none))))
    rows = [_row(each) for each in found]
    rich = html.table(_HEADERS[1:], [[escape(cell) for cell in row[1:]] for row in rows])
    return View(list(found), text.table(_HEADERS, rows), html.page(rich, html.as_of(time.time())))


def line(now: Queued) -> str:
    """One line, for waiting."""
    return f"{now.name}: {now.state}, {_nodes(now)}"


def _row(each: Queued) -> tuple[str, ...]:
    mark = Mark.OK if each.usable else Mark.FAIL if each.state in {"FAILED", "SUSPENDED"} else Mark.WAIT
    kind = each.nodes[0].accelerator if each.nodes else ""
    return (mark, each.name, each.state, each.tier, kind, _nodes(each), each.reason)


def _nodes(each: Queued) -> str:
    counts: dict[str, int] = {}
    for node in each.nodes:
        state = "not created yet" if node.state == "-" else node.state
        counts[state] = counts.get(state, 0) + 1
    listed = ", ".join(f"{number} {state}" for state, number in counts.items())
    return f"{words.count(len(each.nodes), 'node')}: {listed}" if listed else "no nodes"
