"""Log lines in the format of Pathways' own programs, which users and tools read in a pod's log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence

_LETTERS = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


class Formatter(logging.Formatter):
    """``I1208 20:10:04.992524       1 worker.py:42] message``."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, then its traceback if it has one."""
        moment = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        letter = _LETTERS.get(record.levelno, "I")
        head = f"{letter}{moment}.{micros:06d} {record.process or 0:7d} {record.filename}:{record.lineno}]"
        line = f"{head} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up(program: str, argv: Sequence[str]) -> None:
    """Send this process's log to its standard error, beginning with its arguments."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("jax", "grpc", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    log = logging.getLogger(program)
    for index, argument in enumerate((program, *argv)):
        log.info("argv[%d]: '%s'", index, argument)
