"""Errors of calls on hosts; equal failures of several hosts are reported once."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from pathways_jupyter.base import text
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.printable import printable
from pathways_jupyter.colocated.remote.failures import ADVICE, ELSEWHERE

WHOLE = "%pathways traceback shows the whole traceback."
_MAX_CHARACTERS = 20_000
_IPYTHONS = {
    "!": "! is IPython syntax, and hosts run plain Python: use subprocess.run(..., capture_output=True) instead.",
    "%": "Magics are IPython syntax, and hosts run plain Python: put a cell magic such as %%time above %%colocated.",
}
_FRAME = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')
HOST = re.compile(r"\bhost \d+")
"""A host, as the errors of JAX's colocated Python name it."""
_OTHERS = ("site-packages", "pathways_jupyter", "jax/")


def host_text(text: object) -> str:
    """Return a host's text as it may be shown; the middle of a long one is cut.

    A host may send anything in place of text.
    """
    shown = str(text)
    if len(shown) > _MAX_CHARACTERS:
        half = _MAX_CHARACTERS // 2
        shown = f"{shown[:half]} ... ({len(shown):,} characters) ... {shown[-half:]}"
    return printable(shown, lines=True)


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

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(host_text(message), hint=hint)


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
        return [*shown, f"  {self.advice(self.face)}"] if self.hint else shown


class HostError(ColocatedError):
    """Code raised exceptions on hosts.

    Args:
      failures: The exceptions and their hosts; equal exceptions of several hosts count as one.
      total: How many hosts the code ran on.
    """

    def __init__(self, failures: Sequence[Failure], total: int) -> None:
        self.failures = tuple(failures)
        self.total = total
        summaries = []
        for each in self.failures:
            at = f", line {each.line}: {each.text}" if each.line else ""
            message = next(iter(each.message.splitlines()), "")
            summaries.append(f"{self._where(each)}{at}: {each.type}{': ' if message else ''}{message}")
        super().__init__("; ".join(summaries))

    def _where(self, failure: Failure) -> str:
        if self.total > 1 and len(failure.hosts) == self.total:
            return f"all {self.total} hosts"
        return name_hosts(failure.hosts)

    def remote_traceback(self) -> str:
        """Return each failure's traceback under its hosts' names; equal tracebacks only once."""
        parts: list[str] = []
        first: dict[str, Failure] = {}
        for each in self.failures:
            same = first.setdefault(each.traceback.replace(each.message, ""), each)
            if same is each:
                parts.append(f"On {self._where(each)}:\n{each.traceback.rstrip()}")
            else:
                position = f"at the same place as {self._where(same)}"
                parts.append(f"On {self._where(each)}, {position}: {each.type}: {each.message}")
        return "\n\n".join(parts)

    def _render_traceback_(self) -> list[str]:
        # IPython shows this instead of the local traceback, which only has frames of this package.
        return self.remote_traceback().splitlines()


def name_hosts(hosts: Sequence[int]) -> str:
    """Return ``host 3``, ``hosts 0-3`` or ``hosts 0, 2-5``."""
    return f"{'host' if len(hosts) == 1 else 'hosts'} {text.ranges(hosts, ', ')}"


def explain_call(error: BaseException) -> list[str]:
    """Return three lines on the error of a host that computed with an array of other hosts; none for another error.

    For calls of JAX's own ``@colocated_python``, whose errors come as they are.
    """
    said = str(error)
    if ELSEWHERE not in said:
        return []
    own = [frame for frame in _FRAME.findall(said) if not any(other in frame[0] for other in _OTHERS)]
    host, where = HOST.search(said), f", line {own[-1][1]} in {own[-1][2]}" if own else ""
    return [
        host_text(f"On {host.group(0) if host else 'a host'}{where}: {type(error).__name__}: {ELSEWHERE}."),
        ADVICE,
        WHOLE,
    ]
