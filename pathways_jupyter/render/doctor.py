"""The findings of ``doctor``, with a fix for each and a verdict at the end."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pathways_jupyter.render import html, text
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View
from pathways_jupyter.service.checks import Finding, Level

_MARKS = {Level.OK: Mark.OK, Level.WARN: Mark.WARN, Level.FAIL: Mark.FAIL}
_TONES = {Level.OK: Tone.OK, Level.WARN: Tone.WAIT, Level.FAIL: Tone.FAIL}


def view(findings: Sequence[Finding]) -> View:
    """All findings in the order of the checks, and the verdict."""
    width = max((len(each.name) for each in findings), default=0)
    plain = []
    rows = []
    for each in findings:
        plain.append(f"{_MARKS[each.level]} {each.name:<{width}}  {each.message}")
        if each.hint:
            plain.append(f"  {'':<{width}}  {each.hint}")
        advice = f"<br>{html.muted(each.hint)}" if each.hint else ""
        rows.append(
            (html.toned(_TONES[each.level], _MARKS[each.level]), escape(each.name), escape(each.message) + advice)
        )
    worst, verdict = _verdict(findings)
    return View(
        list(findings),
        "\n".join([*plain, "", f"{_MARKS[worst]} {verdict}"]),
        html.page(html.card(_TONES[worst], html.head(verdict), html.table(("", "checked", "found"), rows))),
    )


def _verdict(findings: Sequence[Finding]) -> tuple[Level, str]:
    failed = sum(each.level is Level.FAIL for each in findings)
    warned = sum(each.level is Level.WARN for each in findings)
    if failed:
        return Level.FAIL, f"{text.count(failed, 'problem keeps', 'problems keep')} this machine from connecting."
    if warned:
        return Level.WARN, f"Connecting works; {text.count(warned, 'warning needs', 'warnings need')} attention."
    return Level.OK, "All is well."
