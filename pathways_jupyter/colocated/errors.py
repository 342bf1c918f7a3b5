"""Errors of calls on hosts; equal failures of several hosts are reported once."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from pathways_jupyter import ranges
from pathways_jupyter.errors import PathwaysError

_IPYTHONS = {
    "!": "! is IPython syntax, and hosts run plain Python: use subprocess.run(..., capture_output=True) instead.",
    "%": "Magics are IPython syntax, and hosts run plain Python: put a cell magic such as %%time above %%colocated.",
}


@dataclass(frozen=True)
class Failure:
    """One exception, and the hosts that raised it.

    Attributes:
      hosts: Indices of the hosts, ascending.
      type: The exception's class name.
      message: Its message.
      traceback: The remote traceback, from the cell's own lines on.
      line: The line of the cell, counted from 1, or None.
      text: That line.
    """

    hosts: tuple[int, ...]
    type: str
    message: str
    traceback: str
    line: int | None = None
    text: str = ""


class ColocatedError(PathwaysError):
    """A call on hosts could not be made, or did not return."""


class CheckError(ColocatedError):
    """A check before sending failed; nothing ran on any host."""


class LostError(ColocatedError):
    """A sidecar, a slice or the session was lost while a call ran on it."""


class CellSyntaxError(CheckError):
    """A cell is not Python; nothing ran on any host.

    Args:
      error: Python's own error.
    """

    def __init__(self, error: SyntaxError) -> None:
        hint = _IPYTHONS.get((error.text or "").lstrip()[:1], "")
        super().__init__(f"Line {error.lineno}: {error.msg}. Nothing was run.", hint=hint)
        self._shown = traceback.format_exception_only(error)

    def _render_traceback_(self) -> list[str]:
        shown = "".join(self._shown).splitlines()
        return [*shown, f"  {self.hint}"] if self.hint else shown


class HostError(ColocatedError):
    """Code raised exceptions on hosts.

    Args:
      failures: The exceptions and their hosts; equal exceptions of several hosts count as one.
      total: How many hosts the code ran on.
    """

    def __init__(self, failures: Sequence[Failure], total: int) -> None:
        self.failures = tuple(failures)
        self.total = total
        super().__init__("; ".join(self._summary(failure) for failure in self.failures))

    def _summary(self, failure: Failure) -> str:
        at = f", line {failure.line}: {failure.text}" if failure.line else ""
        message = failure.message.splitlines()[0] if failure.message else ""
        return f"{self._where(failure)}{at}: {failure.type}{': ' if message else ''}{message}"

    def _where(self, failure: Failure) -> str:
        if self.total > 1 and len(failure.hosts) == self.total:
            return f"all {self.total} hosts"
        return name_hosts(failure.hosts)

    def remote_traceback(self) -> str:
        """Each failure's traceback under its hosts' names; equal tracebacks only once."""
        parts: list[str] = []
        first: dict[str, Failure] = {}
        for each in self.failures:
            lines = each.traceback.replace(each.message, "")
            before = first.setdefault(lines, each)
            if before is each:
                parts.append(f"On {self._where(each)}:\n{each.traceback.rstrip()}")
            else:
                parts.append(
                    f"On {self._where(each)}, at the same place as {self._where(before)}: {each.type}: {each.message}"
                )
        return "\n\n".join(parts)

    def _render_traceback_(self) -> list[str]:
        # IPython shows this instead of the local traceback, which only has frames of this package.
        return self.remote_traceback().splitlines()


def name_hosts(hosts: Sequence[int]) -> str:
    """``host 3``, ``hosts 0-3`` or ``hosts 0, 2-5``."""
    return f"{'host' if len(hosts) == 1 else 'hosts'} {ranges.written(hosts, ', ')}"
