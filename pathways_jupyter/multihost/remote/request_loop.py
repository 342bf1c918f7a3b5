"""The steps of a run on a host, one after another as the client requests them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time

from pathways_jupyter.multihost.remote import keeper, processes
from pathways_jupyter.multihost.remote.step import HOME, STATE, answer, explained, remove_old
from pathways_jupyter.multihost.remote.sync import synchronize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ALIVE, STOP, FORGET = b".", b"!", b"x"
"""Messages of a client that follows a run: a sign of life, the request to end the run, and that to remove its files."""
RUNS = f"{STATE}/runs"
_TPU_LOCK = "/tmp/libtpu_lockfile"
"""File that a killed process leaves, and that libtpu's next process then waits for."""
_COMMAND_LENGTH = 100
_LEFT_SECONDS = 24 * 3600.0
"""Age of the files of a run whose client never came back."""
_SEND_BYTES = 256 * 1024
_QUICK_SECONDS, _IDLE_SECONDS = 0.005, 0.2
_SILENCE_SECONDS = 90.0
"""The client writes more often than this while it follows a run; without, the connection is dead."""


def main(take: Callable[[], Any]) -> None:
    """Do the steps that the client requests, until it closes the connection.

    Args:
      take: Returns the next frame, and ends the program if there is none.
    """
    steps: dict[str, Callable[..., None]] = {"start": start, "follow": follow}
    while True:
        request = take()
        step = request.pop("step")
        with explained():
            if step == "sync":
                synchronize(take, **request)
            else:
                steps[step](**request)


def start(run: str, spec: dict[str, Any]) -> None:
    """Start a run; no-op if it was started before. See :func:`keeper.start`.

    Answers with the processes that hold the TPU chips, and ends them first if `spec` says so.
    """
    cwd = f"{HOME}/{spec['cwd']}"
    if not os.path.isdir(cwd):
        answer(error="directory", message="there is no such directory", path=cwd)
        return
    chips, free, held = spec.pop("chips"), spec.pop("free"), dict[int, str]()
    # A second request must not take the chips from what the first has started.
    if not os.path.isdir(f"{RUNS}/{run}"):
        held = processes.holders(chips)
        if free:
            processes.end(lambda: processes.holders(chips), spec["grace"])
            # Also without a holder: it may be that of a process which was killed earlier.
            with contextlib.suppress(OSError):
                os.unlink(_TPU_LOCK)
    keeper.start(f"{RUNS}/{run}", {**spec, "cwd": cwd, "run": run})
    answer(held=[f"{command[:_COMMAND_LENGTH]} (process {pid})" for pid, command in held.items()])
    remove_old(RUNS, _LEFT_SECONDS, keeper.is_running)


def follow(run: str, offset: int) -> None:
    """Send the output of a run from the byte `offset` on until its end, and its outcome; then wait for FORGET.

    What the client sends meanwhile are signs of life, without which the run ends, or the request to end it. So this is
    a program's last step.
    """
    directory = f"{RUNS}/{run}"
    answer()
    # A client that reads slowly must not keep this program from receiving its signs of life.
    os.set_blocking(1, False)
    waiting, ended, pause, received_at = b"", False, _QUICK_SECONDS, time.monotonic()
    while True:
        readable, _, _ = select.select([0], [1] if waiting else [], [], pause)
        if readable:
            signs = os.read(0, _SEND_BYTES)
            if not signs:
                return
            if FORGET in signs:
                # Not shutil.rmtree(): importing shutil takes longer than all of this.
                for name in os.listdir(directory):
                    os.unlink(f"{directory}/{name}")
                os.rmdir(directory)
                answer()
                return
            received_at = time.monotonic()
            os.utime(f"{directory}/{keeper.CLIENT}")
            if STOP in signs:
                keeper.ask_to_stop(directory)
        elif time.monotonic() - received_at > _SILENCE_SECONDS:
            # Not only the step: nothing else would end this program before the connection's own limit of hours.
            sys.exit(0)
        if waiting:
            with contextlib.suppress(BlockingIOError):
                waiting = waiting[os.write(1, waiting) :]
            continue
        if ended:
            continue
        # Before the output is read: so all of it was there when nothing more is found.
        outcome, data = keeper.outcome(directory), b""
        with contextlib.suppress(OSError), open(f"{directory}/{keeper.OUTPUT}", "rb", buffering=0) as output:
            output.seek(offset)
            data = output.read(_SEND_BYTES)
        if data:
            waiting, offset, pause = _line(bytes=len(data)) + data, offset + len(data), _QUICK_SECONDS
        elif outcome is not None:
            if outcome["why"] == "lost":
                # The keeper was killed; end what it can no longer end.
                keeper.ask_to_stop(directory)
            waiting, ended = _line(outcome=outcome), True
        else:
            pause = min(2 * pause, _IDLE_SECONDS)


def _line(**values: Any) -> bytes:
    return json.dumps(values).encode() + b"\n"
