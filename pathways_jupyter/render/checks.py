"""Checks: the findings of ``doctor`` with a fix for each; what ``accept`` and ``demo`` do and find; the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from pathways_jupyter.accept.plan import CHECKS, Check, CheckResult, Outcome
from pathways_jupyter.accept.report import Report
from pathways_jupyter.base.errors import more
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.base.text import count
from pathways_jupyter.base.tones import Mark, Tone
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import Part, card, head, muted, table, toned
from pathways_jupyter.render.view import View, drawn, preformatted
from pathways_jupyter.service.checks import Finding


def findings(results: Sequence[Finding], face: Face) -> View:
    """All findings in the order of the checks, and the verdict; `face` is where commands are typed."""
    width = max((len(each.name) for each in results), default=0)
    plain = []
    rows = []
    for each in results:
        plain.append(f"{each.level.mark} {each.name:<{width}}  {each.message}")
        advice = f"{each.hint} ({more(each.heading, face)})" if each.hint else ""
        if advice:
            plain.append(f"  {'':<{width}}  {advice}")
        below = f"<br>{muted(advice).html}" if advice else ""
        rows.append((toned(each.level), each.name, Part(each.message, escape(each.message) + below)))
    failed = sum(each.level is Tone.FAIL for each in results)
    warned = sum(each.level is Tone.WARN for each in results)
    worst, summary = Tone.OK, "All is well."
    if failed:
        worst, summary = Tone.FAIL, f"{count(failed, 'problem keeps', 'problems keep')} this machine from connecting."
    elif warned:
        worst, summary = Tone.WARN, f"Connecting works; {count(warned, 'warning needs', 'warnings need')} attention."
    rich = card(worst, head(summary), table(("", "checked", "found"), rows)).html
    return drawn(list(results), Part("\n".join([*plain, "", f"{worst.mark} {summary}"]), rich))


def begun(check: Check) -> str:
    """Return the line of a check that runs now."""
    return f"{Mark.WAIT} {check.name}: {check.title}"


def ended(result: CheckResult) -> str:
    """One result: its time, and what was found."""
    if result.outcome is Outcome.SKIPPED:
        return f"{Mark.NONE} {result.name:<14} skipped: {result.lines[-1]}"
    mark = Mark.OK if result.outcome is Outcome.PASSED else Mark.FAIL
    head = f"{mark} {result.name:<14} {text.duration(result.seconds)}"
    return "\n".join([head, *(f"    {line}" for each in result.lines for line in each.splitlines())])


def planned(left_out: Mapping[str, str]) -> View:
    """All checks, and which of them would run."""
    rows = [
        (Mark.NONE if each.name in left_out else Mark.OK, each.name, left_out.get(each.name) or each.title)
        for each in CHECKS
    ]
    value = [{"name": each.name, "title": each.title, "left_out": left_out.get(each.name, "")} for each in CHECKS]
    return preformatted(text.table(("", "", ""), rows), value)


def verdict(report: Report) -> str:
    """Return how many checks passed, failed and were skipped."""
    counts = [f"{number} {each}" for each in Outcome if (number := report.count(each)) or each is Outcome.PASSED]
    return ", ".join([*counts, *(["interrupted"] if report.interrupted else [])])


def outcome(report: Report, more: str = "") -> View:
    """Return the verdict, and what is left behind."""
    mark = Mark.FAIL if report.failed or report.interrupted else Mark.OK
    lines = [
        f"{mark} {verdict(report)}, in {text.duration(report.seconds)}.",
        f"  Left behind: {'; '.join(report.left) or 'nothing'}.",
    ]
    reasons: dict[str, list[str]] = {}
    for each in report.results:
        if each.outcome is Outcome.SKIPPED:
            reasons.setdefault(each.lines[-1], []).append(each.name)
    if reasons:
        skipped = [f"{', '.join(names)} ({why})" for why, names in reasons.items()]
        lines.append(f"  Skipped: {'; '.join(skipped)}.")
    return preformatted("\n".join([*lines, *filter(None, [more])]), {"passed": mark is Mark.OK, **vars(report)})
