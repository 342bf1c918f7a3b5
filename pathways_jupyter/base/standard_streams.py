"""Standard streams that the caller has closed, for programs of this package that a user or a container starts."""

from __future__ import annotations

import os
import sys


def open_closed() -> None:
    """Open standard streams that the caller has closed (``2>&-``) on the null device.

    Python has None in their place then, and the next file or socket would get their number, which programs that are
    started from here would take for their own stream. And print() takes None for standard output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        # The lowest number that is free; another one if Python itself has taken this one meanwhile.
        opened = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(opened, opened == number)
        setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))
