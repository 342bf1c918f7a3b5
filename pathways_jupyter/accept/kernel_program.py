"""The process that has a session and runs the checks beside JAX: a stand-in for a notebook's kernel.

It reads lines of JSON from standard input, first ``{"config": ...}``, then a ``{"check": ...}`` for each check, and
answers on standard output: ``{"line": ...}`` for each finding, and ``{"outcome": ..., "why": ...}`` at a check's end.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any

from pathways_jupyter.accept.plan import Outcome, outcome_of
from pathways_jupyter.base import json_lines
from pathways_jupyter.session import protocol


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

    context = kernel_checks.CheckContext(protocol.config_from_json(requests.get()["config"]))
    while True:
        check = kernel_checks.CHECKS[requests.get()["check"]]
        try:
            for line in check(context):
                answer(line=line)
        except Exception as error:
            outcome, why = outcome_of(error)
            answer(outcome=outcome, why=why)
        else:
            answer(outcome=Outcome.PASSED)


def _read(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    try:
        for line in sys.stdin.buffer:
            requests.put(json_lines.decode(line))
    finally:
        # Whatever JAX waits for: the process that wants to know has ended, perhaps in the middle of a line.
        os._exit(1)


if __name__ == "__main__":
    main()
