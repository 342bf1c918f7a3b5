"""Events of a run."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pathways_jupyter.multihost.targets import Target

UNREACHABLE = 255
"""The exit code that stands for a host without one, as in ssh."""


class HostPhase(StrEnum):
    """Phase of a host."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    SENDING = "receiving files"
    READY = "ready"
    RUNNING = "running"
    RECONNECTING = "reconnecting"
    EXITED = "exited"
    STOPPED = "stopped"
    FAILED = "failed"
    """It could not start."""
    LOST = "lost"
    """It started, and its end is not known, or came from outside."""

    @property
    def over(self) -> bool:
        """Return whether nothing more will happen on the host."""
        return self in {HostPhase.EXITED, HostPhase.STOPPED, HostPhase.FAILED, HostPhase.LOST}


@dataclass(frozen=True)
class HostStatus:
    """One host of a run as it is now.

    Attributes:
      sent: Bytes of content that the host has received, of `total`.
      last_line: The newest line of its output that is not empty.
      code: Exit code; negative for a signal; None before the end.
      began: When the command started, in seconds since the epoch; 0 before.
      ended: When it ended; 0 before.
      message: What went wrong, with what to do about it in `hint`.
    """

    target: Target
    phase: HostPhase = HostPhase.WAITING
    sent: int = 0
    total: int = 0
    last_line: str = ""
    code: int | None = None
    began: float = 0.0
    ended: float = 0.0
    message: str = ""
    hint: str = ""

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell gives it, 128 and more for signals; 255 if the host failed; None before the end."""
        if self.phase in {HostPhase.FAILED, HostPhase.LOST}:
            return UNREACHABLE
        return self.code if self.code is None or self.code >= 0 else 128 - self.code


@dataclass(frozen=True)
class Output:
    """New lines of one host, and its status, which has the last of them."""

    status: HostStatus
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Changed:
    """A host's status has changed."""

    status: HostStatus


@dataclass(frozen=True)
class Note:
    """Something that the user should know."""

    text: str


@dataclass(frozen=True)
class RunEnded:
    """The last event.

    Attributes:
      code: The worst exit code.
    """

    hosts: tuple[HostStatus, ...]
    code: int


Event = Output | Changed | Note | RunEnded


def worst(hosts: Sequence[HostStatus]) -> int:
    """Return the worst exit code. A host that was stopped because of another one does not count."""
    codes = [each.exit_code or 0 for each in hosts if each.phase is not HostPhase.STOPPED]
    if not any(codes) and any(each.phase is HostPhase.STOPPED for each in hosts):
        return 128 + signal.SIGTERM
    return max(codes, default=0)
