"""The subset of JSONPath that printer columns of custom resource definitions use."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>[A-Za-z_$][\w$-]*)
    |\[(?P<index>-?\d+)\]
    |\[(?P<all>\*)\]
    |\['(?P<quoted>(?:[^'\\]|\\.)*)'\]
    |\[\?\(@\.(?P<key>[\w.-]+)\s*==\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)\)\]""",
    re.VERBOSE,
)

_Step = Callable[[Any], Iterable[Any]]


def first_value(path: str, obj: Any) -> Any:
    """The first thing that `path` finds in `obj`; None when it finds nothing or cannot be read."""
    found = [obj]
    for step in _compile(path):
        found = [value for each in found for value in step(each)]
    return found[0] if found else None


@functools.lru_cache(maxsize=512)
def _compile(path: str) -> tuple[_Step, ...]:
    path = path.strip().removeprefix("{").removesuffix("}").replace("\\.", "\0")
    path = path if path.startswith((".", "[")) else f".{path}"
    steps, position = [], 0
    while position < len(path):
        match = _ESCAPED.match(path, position) or _STEP.match(path, position)
        if match is None:
            return (lambda _: (),)
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


_ESCAPED = re.compile(r"\.(?P<field>[^.\[\]]*\0[^.\[\]]*)")


def _step(match: re.Match[str]) -> _Step:
    groups = match.groupdict()
    if groups.get("field") is not None or groups.get("quoted") is not None:
        name = (groups.get("field") or groups.get("quoted") or "").replace("\0", ".")
        return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()
    if groups["index"] is not None:
        index = int(groups["index"])
        return lambda value: value[index:][:1] if isinstance(value, list) else ()
    if groups["all"]:
        return lambda value: value if isinstance(value, list) else ()
    key, wanted = groups["key"], groups["value"]
    return lambda value: (
        [each for each in value if isinstance(each, dict) and str(each.get(key)) == wanted]
        if isinstance(value, list)
        else ()
    )
