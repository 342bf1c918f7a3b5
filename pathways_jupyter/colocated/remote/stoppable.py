"""Calls that can be stopped: user code runs in a thread of its own, which Interrupt ends.

An exception sent to a thread arrives between two steps of Python code, so code that waits inside C (a sleep, a socket)
sees it late. The call ends anyway, soon after the request, and reports where that thread is still waiting.
"""

from __future__ import annotations

import contextvars
import ctypes
import os
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable

GRACE_SECONDS = 1.5
_KEPT = 256
_EXIT_SECONDS = 0.2

_lock = threading.Lock()
_running: dict[str, Job] = {}
_cancelled_early: OrderedDict[str, None] = OrderedDict()


class Stopped(Exception):
    """The thread did not end in time after a request to stop; the message says where it waits."""


class Job:
    """One call's thread."""

    def __init__(self, call: str) -> None:
        self.call = call
        # Set when the thread has ended, or is to be stopped; and when it has ended.
        self._changed = threading.Event()
        self._ended = threading.Event()
        # Protects the next two: an exception is sent only while the call's own code runs. In Python's code that starts
        # or ends a thread it would leave a lock taken, and the call would never be answered.
        self._lock = threading.Lock()
        self._is_working = False
        self._is_cancelled = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def run(self, work: Callable[[], object], filename: str) -> None:
        """Run `work` to its end, or until :func:`cancel`.

        Raises:
          KeyboardInterrupt: It was cancelled.
          Stopped: It was cancelled, and still waits somewhere; `filename` is looked for to say where.
        """
        with _lock:
            if _cancelled_early.pop(self.call, 0) is None:
                raise KeyboardInterrupt
            _running[self.call] = self
        try:
            context = contextvars.copy_context()
            self._thread = threading.Thread(target=context.run, args=(self._work, work), daemon=True)
            self._thread.name = f"colocated-{self.call}"
            self._thread.start()
            self._changed.wait()
            if not self._ended.wait(GRACE_SECONDS):
                raise Stopped(_where(self._thread, filename))
        finally:
            with _lock:
                _running.pop(self.call, None)
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Raise KeyboardInterrupt in the thread, at once or as soon as it begins."""
        with self._lock:
            self._is_cancelled = True
            if self._is_working and self._thread is not None:
                thread = ctypes.c_ulong(self._thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(KeyboardInterrupt))
        self._changed.set()

    def _work(self, work: Callable[[], object]) -> None:
        try:
            try:
                with self._lock:
                    if self._is_cancelled:
                        raise KeyboardInterrupt
                    self._is_working = True
                work()
            finally:
                # An exception that was sent before this is raised here at the latest, when the lock is released.
                with self._lock:
                    self._is_working = False
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
            self._changed.set()


def _where(thread: threading.Thread, filename: str) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = traceback.extract_stack(frame) if frame else []
    own = [each for each in stack if each.filename == filename] or stack[-1:]
    return f"line {own[-1].lineno}: {own[-1].line}" if own else "somewhere in C code"


def cancel(call: str) -> None:
    """Stop a call; one that has not begun yet ends as it begins."""
    with _lock:
        job = _running.get(call)
        if job is None:
            _cancelled_early[call] = None
            while len(_cancelled_early) > _KEPT:
                _cancelled_early.popitem(last=False)
    if job is not None:
        job.cancel()


def end_process() -> None:
    """End this process, and whatever still runs in it, as soon as the answer to this request is out."""
    timer = threading.Timer(_EXIT_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
