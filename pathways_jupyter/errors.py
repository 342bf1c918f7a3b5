"""One tree of errors: each says what happened, and what to do next.

A face (magic, command line, server) shows ``str(error)`` and ``error.advice(face)`` and nothing else, so both must
stand on their own: name the thing that failed, then the command or the setting that fixes it. The message is the same
in every face, and names no flag and no magic.
"""

from __future__ import annotations

from pathways_jupyter.wording import Face, worded


class PathwaysError(Exception):
    """Anything this package raises on purpose.

    Args:
      message: What happened, in one line.
      hint: What to do next, in one line and in the words of the magics; empty when the message says it already.

    Attributes:
      face: Whose words IPython shows; the notebook's, unless the call that failed was one of a script's.
    """

    face = Face.NOTEBOOK

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            # A script that does not catch it shows the hint below the traceback.
            self.add_note(worded(hint, Face.SCRIPT))

    def advice(self, face: Face) -> str:
        """The hint in the words of `face`."""
        return worded(self.hint, face)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of the traceback, in a notebook and in a terminal."""
        lines = [f"\x1b[1;31m{type(self).__name__}\x1b[0m: {self}"]
        if self.hint:
            lines.append(f"  {self.advice(self.face)}")
        if self.__cause__ is not None:
            lines.append("  \x1b[2mWhat led to it: %pathways traceback\x1b[0m")
        return lines


class ConfigError(PathwaysError):
    """An argument, a profile or an environment variable cannot be used; nothing was changed."""


class ClusterError(PathwaysError):
    """The Kubernetes API could not be reached, or refused the credentials."""


class ApiError(ClusterError):
    """The Kubernetes API answered with an error Status.

    Args:
      status: The HTTP status code.
      reason: The Status's machine-readable reason, e.g. ``NotFound`` or ``AlreadyExists``.
    """

    def __init__(self, message: str, *, status: int, reason: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason


class ServiceError(PathwaysError):
    """The Shared Pathways Service is missing, unhealthy, or cannot give what was asked."""


class CapacityError(ServiceError):
    """Every matching slice is taken; the message says who holds what."""


class SessionError(PathwaysError):
    """A session could not be started, was lost, or does not exist."""


class LocalClusterError(PathwaysError):
    """The embedded cluster could not be started, or did not answer."""
