"""The checks of ``accept`` and of ``demo``: what they will do, each result, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping

from pathways_jupyter.accept.plan import CHECKS, Check, CheckResult, Outcome
from pathways_jupyter.accept.report import Report
from pathways_jupyter.render import text
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View, preformatted


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


def view(report: Report, more: str = "") -> View:
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
