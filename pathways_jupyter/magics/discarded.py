"""Whether anything takes the value that a magic returns.

IPython shows the value of a cell's last expression only. ``%pathways status`` followed by another line would show
nothing, so a magic displays its result itself there; and must not where the value is assigned, or where IPython is
about to display it. Only the caller's code knows which it is: the instruction after the call discards the value or not.
"""

from __future__ import annotations

import dis
import sys

_RUNNERS = {"run_line_magic", "run_cell_magic"}
_DEPTH = 8
"""Frames between a magic's own method and the cell; decorators of other extensions may add some."""


def result_is_discarded() -> bool:
    """Whether the cell that called the running magic drops what it returns; False where that cannot be known."""
    frame = sys._getframe(1)
    for _ in range(_DEPTH):
        caller = frame.f_back
        if caller is None:
            return False
        if frame.f_code.co_name in _RUNNERS:
            after = (each for each in dis.get_instructions(caller.f_code) if each.offset > caller.f_lasti)
            return next((each.opname == "POP_TOP" for each in after if each.opname != "CACHE"), False)
        frame = caller
    return False
