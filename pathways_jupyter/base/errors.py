"""Base classes of all errors: each has a message (what failed) and a hint (what to do next).

A face (magic, command line, server) shows only ``str(error)`` and ``error.advice(face)``. So the message must name the
thing that failed, and the hint the command or setting that fixes it. The message is the same in every face, so it names
no flag and no magic.

What a supervisor raises for its kernel is here too: an error between processes arrives as one of this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from pathways_jupyter.base import project
from pathways_jupyter.base.printable import printable
from pathways_jupyter.base.sentences import Face, advice, topic_of, worded


def is_coloured() -> bool:
    """Return whether errors may be coloured: neither NO_COLOR nor IPython's ``%colors NoColor`` forbids it."""
    # A process without IPython does not pay for its import.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return not os.environ.get("NO_COLOR") and str(getattr(shell, "colors", "")).lower() != "nocolor"


def more(name: str, face: Face) -> str:
    """Return how to read more about `name`: the class of an error, or a finding of the doctor."""
    command = worded(advice("{explain:{topic}}", topic=topic_of(name)), face)
    address = project.page("docs/troubleshooting.md")
    return f"more: {command}{f', {address}#{topic_of(name)}' if address else ''}"


class PathwaysError(Exception):
    """Base class of all errors that this package raises on purpose.

    Args:
      message: What happened, in one line.
      hint: What to do next, in one line; an :func:`~pathways_jupyter.base.sentences.advice` where it names a command or
        an option. Empty when the message says it already.

    Attributes:
      face: The face for whose commands IPython words the hint: the notebook's, unless a call from Python failed.
    """

    face = Face.NOTEBOOK

    def __init__(self, message: str, *, hint: str = "") -> None:
        # Parts of both may come from a cluster, a bucket or a host.
        super().__init__(printable(message, lines=True))
        self.hint = printable(hint, lines=True)
        if hint:
            # As a note, so that Python shows the hint below the traceback of a script.
            self.add_note(self.advice(Face.SCRIPT))

    def advice(self, face: Face) -> str:
        """Return the hint and the command that explains more, worded for `face`; empty without a hint."""
        if not self.hint or type(self) is PathwaysError:
            # The base class has no section of its own.
            return worded(self.hint, face)
        return f"{worded(self.hint, face)} ({more(type(self).__name__, face)})"

    def to_json(self, face: Face = Face.NOTEBOOK) -> dict[str, Any]:
        """Return message and hint as JSON values, the hint worded for `face`."""
        return {"message": str(self), "hint": worded(self.hint, face)}

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows instead of a traceback, in a notebook and in a terminal."""
        name, led = type(self).__name__, "What led to it: %pathways traceback"
        if is_coloured():
            name, led = f"\x1b[1;31m{name}\x1b[0m", f"\x1b[2m{led}\x1b[0m"
        lines = [f"{name}: {self}"]
        if self.hint:
            lines.append(f"  {self.advice(self.face)}")
        if self.__cause__ is not None:
            lines.append(f"  {led}")
        return lines


class ConfigError(PathwaysError):
    """An argument, a profile or an environment variable cannot be used; nothing was changed."""


class NoKubeconfigError(ConfigError):
    """There is no kubeconfig at all: the user has not set up a cluster yet, so nothing is broken."""


class ClusterError(PathwaysError):
    """The Kubernetes API could not be reached, or refused the credentials."""


class Unreachable(ClusterError):
    """Connecting to the API server failed; nothing was sent.

    Attributes:
      may_pass: Whether it may be over in a moment, as a refused connection; a wrong name or certificate stays.
    """

    may_pass = False


class ConnectionLost(ClusterError):
    """The connection ended before the answer was complete; the server may or may not have acted on the request."""


class ApiError(ClusterError):
    """The Kubernetes API answered with an error Status.

    Args:
      status: The HTTP status code.
      reason: The Status's machine-readable reason, e.g. ``NotFound`` or ``AlreadyExists``.

    Attributes:
      retry_after: Seconds after which the server wants to be asked again; 0 if it does not say.
    """

    retry_after = 0.0

    def __init__(self, message: str, *, status: int, reason: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason


class ServiceError(PathwaysError):
    """The Shared Pathways Service is missing or unhealthy, or cannot satisfy the request."""


class CapacityError(ServiceError):
    """All matching slices are taken; the message lists their holders."""


class SessionError(PathwaysError):
    """A session could not be started, was lost, or does not exist."""


class LocalClusterError(PathwaysError):
    """The embedded cluster could not be started, or did not answer."""


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield `error` and what led to it, each once: ``raise error from error`` makes one that is its own cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
