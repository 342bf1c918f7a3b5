"""The process that has a session and runs the checks beside JAX: a stand-in for a notebook's kernel.

It reads lines of JSON from standard input, first ``{"config": ...}``, then a ``{"check": ...}`` for each check, and
answers on standard output: ``{"line": ...}`` for each finding, and ``{"outcome": ..., "why": ...}`` at a check's end.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from typing import Any

from pathways_jupyter.accept.plan import Broken, Outcome, Skipped
from pathways_jupyter.base import json_lines
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.session import protocol

_CALLS = 5


def main() -> None:
    """Run checks until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    # What JAX or a check prints is no answer.
    os.dup2(2, 1)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()

    def answer(**value: str) -> None:
        answers.write(json_lines.encode(value))
        answers.flush()

    from pathways_jupyter.accept import kernel_checks

    kernel = kernel_checks.CheckContext(protocol.config_from_json(requests.get()["config"]))
    while True:
        check = kernel_checks.CHECKS[requests.get()["check"]]
        try:
            for line in check(kernel):
                answer(line=line)
        except Skipped as error:
            answer(outcome=Outcome.SKIPPED, why=str(error))
        except Broken as error:
            answer(outcome=Outcome.FAILED, why=str(error))
        except PathwaysError as error:
            answer(outcome=Outcome.FAILED, why=f"{error} {error.advice(Face.TERMINAL)}".strip())
        except Exception:
            # Whatever JAX raises; its last calls are for the report.
            answer(outcome=Outcome.FAILED, why=traceback.format_exc(limit=-_CALLS))
        else:
            answer(outcome=Outcome.PASSED)


def _read(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin.buffer:
        requests.put(json_lines.decode(line))
    # Whatever JAX waits for: the process that wants to know has ended.
    os._exit(1)


if __name__ == "__main__":
    main()
