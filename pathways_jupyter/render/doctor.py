"""The findings of ``doctor``, with a fix for each and a verdict at the end."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pathways_jupyter.base.errors import more
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.base.text import count
from pathways_jupyter.render.parts import Part, Tone, card, head, muted, table, toned
from pathways_jupyter.render.view import View, drawn
from pathways_jupyter.service.checks import Finding, Level


def view(findings: Sequence[Finding], face: Face) -> View:
    """All findings in the order of the checks, and the verdict; `face` is where commands are typed."""
    width = max((len(each.name) for each in findings), default=0)
    plain = []
    rows = []
    for each in findings:
        tone = Tone(each.level)
        plain.append(f"{tone.mark} {each.name:<{width}}  {each.message}")
        advice = f"{each.hint} ({more(each.heading, face)})" if each.hint else ""
        if advice:
            plain.append(f"  {'':<{width}}  {advice}")
        below = f"<br>{muted(advice).html}" if advice else ""
        rows.append((toned(tone), each.name, Part(each.message, escape(each.message) + below)))
    failed = sum(each.level is Level.FAIL for each in findings)
    warned = sum(each.level is Level.WARN for each in findings)
    worst, verdict = Tone.OK, "All is well."
    if failed:
        worst, verdict = Tone.FAIL, f"{count(failed, 'problem keeps', 'problems keep')} this machine from connecting."
    elif warned:
        worst, verdict = Tone.WARN, f"Connecting works; {count(warned, 'warning needs', 'warnings need')} attention."
    rich = card(worst, head(verdict), table(("", "checked", "found"), rows)).html
    return drawn(list(findings), Part("\n".join([*plain, "", f"{worst.mark} {verdict}"]), rich))
