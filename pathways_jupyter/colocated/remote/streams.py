"""Streams that attribute each printed line to its call: several calls run in one process at once.

`sys.stdout` and `sys.stderr` are replaced once, for good, by objects that look up the call of the writing thread. A
thread that a cell started belongs to the call that started last; without a call, text goes where it went before.
"""

from __future__ import annotations

import contextlib
import contextvars
import io
import logging
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

from .transcript import Transcript

_current: contextvars.ContextVar[Transcript | None] = contextvars.ContextVar("pathways_transcript", default=None)
_active: list[Transcript] = []
_lock = threading.Lock()


def current() -> Transcript | None:
    """Return the transcript of the call that this thread works for."""
    transcript = _current.get()
    if transcript is None:
        with _lock:
            transcript = _active[-1] if _active else None
    return transcript


@contextlib.contextmanager
def written_to(transcript: Transcript) -> Iterator[None]:
    """Send what this thread and its children print to `transcript`."""
    install()
    token = _current.set(transcript)
    with _lock:
        _active.append(transcript)
    try:
        yield
    finally:
        with _lock:
            _active.remove(transcript)
        _current.reset(token)


class Routed(io.TextIOBase):
    """A standard stream that writes to the current call's transcript."""

    def __init__(self, name: str, original: IO[str]) -> None:
        self._name = name
        self.original = original

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As the stream that this one replaced."""
        return getattr(self.original, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write to the current call, or to the original stream."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        transcript = current()
        if transcript is None:
            return self.original.write(text)
        transcript.write(self._name, text)
        return len(text)

    def writable(self) -> bool:
        """Return True, always."""
        return True

    def flush(self) -> None:
        """Flush the original stream; a transcript has no buffer."""
        self.original.flush()

    def fileno(self) -> int:
        """Return the original stream's, so that subprocesses write to the container's log."""
        return self.original.fileno()


class _LogToCall(logging.Handler):
    """Shows log records in the notebook where the process's own handlers write elsewhere.

    As a process without handlers does, it shows warnings and worse; more once user code sets the root logger's level.
    """

    def __init__(self) -> None:
        super().__init__()
        self._level = logging.getLogger().level

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING and logging.getLogger().level == self._level:
            return
        transcript = current()
        shown = any(isinstance(getattr(each, "stream", None), Routed) for each in logging.getLogger().handlers)
        if transcript is not None and not shown:
            transcript.write("stderr", self.format(record) + "\n")


def install() -> None:
    """Replace the standard streams, unless they are replaced already."""
    with _lock:
        for name in ("stdout", "stderr"):
            stream: Any = getattr(sys, name)
            if not isinstance(stream, Routed):
                setattr(sys, name, Routed(name, stream))
        root = logging.getLogger()
        # With no handler at all, logging itself writes warnings to sys.stderr, and basicConfig() in a cell must work.
        if root.handlers and not any(isinstance(handler, _LogToCall) for handler in root.handlers):
            handler = _LogToCall()
            handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
            root.addHandler(handler)
