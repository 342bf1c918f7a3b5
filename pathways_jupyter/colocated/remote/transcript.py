"""Transcript of one call on this host: prints and displays, in order and at a bounded memory.

The first bytes travel with the result, and so does the end. What is between them is only counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import IO, Any

LIVE_BYTES = 256 * 1024
"""Output of one call that is repeated in the container's log, line by line."""
PROGRESS_SECONDS = 5.0
"""Interval at which a line that is overwritten, as progress bars are, is repeated there."""
ERROR = "!"
"""Marks a line of the log that was written to ``stderr``."""
NEWS = "~"
"""Marks a line of the log that is not one of the output's lines."""
TEXT_BYTES = 256 << 10
"""Text of one call that travels with its result, besides the end: it is stored in the file of a notebook."""
TAIL_BYTES = 16 * 1024
DISPLAY_BYTES = 8 << 20
"""Displays of a call that travel with its result."""


class Transcript:
    """Text and displays of one call.

    Args:
      call: The call's id; it marks the lines in the container's log.
      log: Where complete lines are repeated as they come, or None.
    """

    def __init__(self, call: str, *, log: IO[str] | None = None) -> None:
        self.call = call
        self.size = 0
        self._log = log
        self._live = 0
        self._lock = threading.Lock()
        self._items: list[dict[str, Any]] = []
        self._blobs: list[bytes] = []
        self._display_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._partial: dict[str, str] = {}
        self._progress_at = 0.0
        self._closed = False

    def write(self, stream: str, text: str) -> None:
        """Add text that was written to `stream` (``stdout`` or ``stderr``)."""
        if not text:
            return
        with self._lock:
            if self._closed:
                return
            self._repeat(stream, text)
            size, room = len(text.encode("utf-8", "replace")), max(0, TEXT_BYTES - self.size)
            self.size += size
            if size <= room:
                self._add_text(stream, text)
                return
            # Cut by characters, of which there are never more than bytes.
            if room:
                self._add_text(stream, text[:room])
            text = text[room:][-TAIL_BYTES:]
            self._tail.append(text)
            self._tail_size += len(text)
            while self._tail_size - len(self._tail[0]) >= TAIL_BYTES:
                self._tail_size -= len(self._tail.popleft())

    def display(self, bundle: dict[str, Any]) -> None:
        """Add a display: a value of ``bytes`` is carried as a binary part, when it is small enough."""
        with self._lock:
            if self._closed:
                return
            data: dict[str, Any] = {}
            for kind, value in bundle.items():
                blob = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
                if self._display_size + len(blob) > DISPLAY_BYTES:
                    data[kind] = {"size": len(blob)}
                    continue
                self._display_size += len(blob)
                data[kind] = {"blob": len(self._blobs), "text": not isinstance(value, bytes)}
                self._blobs.append(blob)
            self._items.append({"kind": "display", "data": data})

    def close(self) -> tuple[dict[str, Any], list[bytes]]:
        """End the transcript: everything written later is dropped. Return it as JSON values and binary parts."""
        with self._lock:
            self._closed = True
            for item in self._items:
                if "parts" in item:
                    item["text"] = "".join(item.pop("parts"))
            return {"items": self._items, "size": self.size, "tail": "".join(self._tail)}, self._blobs

    def _add_text(self, stream: str, text: str) -> None:
        if self._items and self._items[-1]["kind"] == stream:
            self._items[-1]["parts"].append(text)
        else:
            self._items.append({"kind": stream, "parts": [text]})

    def note(self, text: str) -> None:
        """Write a line about the call to the container's log that is no part of its output."""
        with self._lock:
            if self._log is not None:
                self._log.write(f"[cell {self.call}]{NEWS} {text}\n")
                self._log.flush()

    def _repeat(self, stream: str, text: str) -> None:
        if self._log is None:
            return
        *lines, rest = (self._partial.pop(stream, "") + text).split("\n")
        for line in lines:
            line = rendered(line)
            self._live += len(line) + 1
            if self._live > LIVE_BYTES:
                self._log = None
                return
            self._log.write(f"[cell {self.call}]{ERROR if stream == 'stderr' else ''} {line}\n")
        if rest:
            self._partial[stream] = self._progress(stream, rest) if "\r" in rest else rest
        if lines:
            self._log.flush()

    def _progress(self, stream: str, rest: str) -> str:
        """Repeat a line that is written over and over now and then; return as much of it as matters."""
        line, now = rendered(rest), time.monotonic()
        if self._log is not None and line and now - self._progress_at > PROGRESS_SECONDS:
            self._progress_at = now
            self._live += len(line) + 1
            self._log.write(f"[cell {self.call}]{NEWS}{ERROR if stream == 'stderr' else ''} {line}\n")
            self._log.flush()
        return f"{line}\r" if rest.endswith("\r") else f"\r{line}"


def rendered(line: str) -> str:
    """Return what a screen shows of a line in which carriage returns let later text be written over earlier text."""
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part), "")
