"""An exception on a host, as the notebook shows it: the cell's own lines, without the machinery around them."""

from __future__ import annotations

import os
import re
import traceback
from typing import Any

_OF_CELLS = re.compile(r"^colocated_\w+\.", re.MULTILINE)
"""The module prefix in the names of exceptions that a cell defined; the user did not choose it."""
ELSEWHERE = "Unknown PjRt global device ID"
"""JAX's message where code on one host computes with an array that lies on others too."""
ADVICE = (
    "It computed with an array that lies on other hosts too. Use this host's part:"
    " [shard.data for shard in array.addressable_shards]."
)


def describe(error: BaseException, filename: str) -> dict[str, Any]:
    """Return `error` as JSON values; `filename` is the cell's."""
    described = traceback.TracebackException.from_exception(error)
    _strip(described, filename)
    at = [frame for frame in described.stack if frame.filename == filename]
    last = at[-1] if at else None
    line, text = (last.lineno, last.line) if last else (None, "")
    if isinstance(error, SyntaxError) and error.filename == filename:
        line, text = error.lineno, error.text
    try:
        message = str(error)
    except Exception as broken:
        message = f"<message could not be made: {type(broken).__name__}>"
    lines = "".join(described.format())
    if ELSEWHERE in message:
        # JAX's own frames say nothing about what to do.
        message = ADVICE
        lines = f"line {line}: {(text or '').strip()}\n{type(error).__name__}: {message}\n"
    return {
        "type": type(error).__name__,
        "message": message,
        "traceback": _OF_CELLS.sub("", lines),
        "line": line,
        "text": (text or "").strip(),
    }


def _strip(described: traceback.TracebackException | None, filename: str, depth: int = 0) -> None:
    """Leave the frames from the cell's first one on; of another error, all but this package's own leading ones."""
    if described is None or depth > 20:
        return
    here = os.path.dirname(__file__) if "__file__" in globals() else f"<{__package__}"
    frames = list(described.stack)
    first = next((index for index, frame in enumerate(frames) if frame.filename == filename), 0)
    frames = frames[first:]
    while frames and frames[0].filename.startswith(here):
        frames.pop(0)
    described.stack = traceback.StackSummary.from_list(frames)
    _strip(described.__cause__, filename, depth + 1)
    _strip(described.__context__, filename, depth + 1)
