"""Patterns as in .gitignore.

pathspec reads them too, but not as git does: a pattern of a directory also matches all that is below it, and
``!data/**`` wins over a ``data/private/`` that follows it. In git the last line that matches a file itself decides, and
a directory that is ignored is not entered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<folders>(?:^|(?<=/))\*\*/) | (?P<rest>(?:^|(?<=/))\*\*$) | (?P<stars>\*+) | (?P<any>\?)"
    r"| \[(?P<inverted>[!^])?(?P<set>\]?(?:\\.|[^\]\\])*)\] | \\(?P<escaped>.) | (?P<literal>[^\[\\])",
    re.VERBOSE | re.DOTALL,
)
_TRANSLATED = {"folders": "(?:.*/)?", "rest": ".+", "stars": "[^/]*", "any": "[^/]"}
_IN_SET = re.compile(r"\\(.)|([^-])", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """One line.

    Attributes:
      base: The directory that it is for.
      ignores: Whether what it matches is ignored; false for a line that begins with ``!``.
      is_name: Whether it ends with a name, and not with a wildcard.
      anchored: Whether it matches paths, and not the last parts of paths.
    """

    base: str
    ignores: bool
    is_name: bool
    anchored: bool
    folders_only: bool
    regex: re.Pattern[str]

    def matches(self, path: str) -> bool:
        """Return whether it matches `path`, of which that of a directory ends with ``/``, and which is below `base`."""
        if self.folders_only and not path.endswith("/"):
            return False
        path = path.rstrip("/")
        below = path[len(self.base) + 1 :] if self.base else path
        return self.regex.fullmatch(below if self.anchored else below.rpartition("/")[2]) is not None


Rules = tuple[Rule, ...]


def read(lines: Iterable[str], base: str = "", *, enters: bool = False) -> Rules:
    """Return the rules of a file's lines.

    Args:
      base: The directory of the file, relative to that of the paths; empty for the same.
      enters: Whether ``!src/**`` is also for ``src`` itself, as in .dockerignore: in git, which does not enter ``src``
        after ``*``, it is in vain.
    """
    return tuple(rule for each in lines if (rule := _rule(each, base, enters)) is not None)


def decisive(path: str, rules: Rules) -> Rule | None:
    """Return the rule that decides whether `path` is ignored: the last that matches it."""
    return next((each for each in reversed(rules) if each.matches(path)), None)


def ignored(path: str, rules: Rules) -> bool:
    """Return whether `rules` ignore `path`; they are not asked about the directories above it."""
    rule = decisive(path, rules)
    return rule is not None and rule.ignores


def _rule(line: str, base: str, enters: bool) -> Rule | None:
    line = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if line.startswith("#"):
        return None
    pattern = line.removeprefix("!").removesuffix("/")
    ignores, folders_only = not line.startswith("!"), line.endswith("/")
    anchored, is_name = "/" in pattern, not set("*?[\\") & set(pattern.rpartition("/")[2])
    pattern = pattern.removeprefix("/")
    regex, end = "", 0
    while end < len(pattern):
        if (token := _TOKEN.match(pattern, end)) is None:
            return None
        end = token.end()
        regex += _translate(token)
    if enters and not ignores and regex.endswith("/.+"):
        regex = f"{regex.removesuffix('/.+')}(?:/.+)?"
    try:
        return Rule(base, ignores, is_name, anchored, folders_only, re.compile(regex, re.DOTALL)) if regex else None
    except re.error:
        return None


def _translate(token: re.Match[str]) -> str:
    """Return the regular expression of one part of a pattern."""
    if (characters := token["set"]) is not None:
        inside = _IN_SET.sub(lambda match: re.escape(match[1] or match[2]), characters)
        return f"(?!/)[{'^' if token['inverted'] else ''}{inside}]"
    if (translated := _TRANSLATED.get(token.lastgroup or "")) is not None:
        return translated
    return re.escape(token["escaped"] or token["literal"])
