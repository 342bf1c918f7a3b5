"""Wait for hosts in a way that Interrupt can end.

JAX waits in C++, where Python's main thread cannot handle a signal. So the work runs in another thread, and the main
thread waits for it in Python.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pathways_jupyter.base import interrupts
from pathways_jupyter.colocated import host_versions, loss
from pathways_jupyter.colocated.errors import ColocatedError, LostError
from pathways_jupyter.colocated.host import Host

if TYPE_CHECKING:
    from pathways_jupyter.colocated.channel import Answer, Channel

T = TypeVar("T")

PATIENCE_SECONDS = 5.0
"""Longest wait for hosts to stop a call after an interrupt."""

_REASON_SECONDS = 1.0
"""Longest wait of a failed call for the supervisor's reason; it has none if only a sidecar was lost."""


def wait(
    to: Sequence[Host],
    work: Callable[[], T],
    stop: Callable[[], object] | None = None,
    interrupted: Callable[[T | None], BaseException] = lambda result: KeyboardInterrupt(),
    seconds: float = math.inf,
) -> T:
    """Run `work` in a thread and return its result; on an interrupt run `stop` in another one and wait a little longer.

    A second interrupt ends the wait at once. No KeyboardInterrupt is raised on the way.

    Args:
      to: The hosts that the work needs.
      work: The work, which may block in C++.
      stop: Ends the work early; without it an interrupt is raised without waiting for the work.
      interrupted: Returns the error to raise after an interrupt, for the work's result, or None if it has not ended.
      seconds: Longest wait without an interrupt.

    Raises:
      KeyboardInterrupt: Interrupt was pressed; or what `interrupted` returns.
      LostError: The session, or a host's slice, was lost meanwhile.
      TimeoutError: The work has not ended within `seconds`.
      Exception: The error that `work` raised.
    """
    # Other threads append to these lists, and then wake the main thread.
    results: list[T] = []
    errors: list[BaseException] = []
    losses: list[LostError] = []
    with interrupts.count_sigint() as waiting:

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:
                errors.append(error)
            waiting.wake()

        def lost(error: LostError) -> None:
            # The worker thread may stay blocked in JAX for minutes: it is a daemon and is abandoned.
            losses.append(error)
            waiting.wake()

        with loss.watch_for_loss((host.slice for host in to), lost) as is_watched:
            threading.Thread(target=run, name="colocated-call", daemon=True).start()
            waiting.wait_for(lambda: results or errors or losses or waiting.count, seconds)
            if waiting.count and stop is not None:
                # In a thread as well, because it is a request to the same hosts and may block in C++ too.
                threading.Thread(target=stop, name="colocated-stop", daemon=True).start()
                waiting.wait_for(lambda: results or errors or losses or waiting.count > 1, PATIENCE_SECONDS)
            if is_watched and errors and isinstance(errors[0], LostError):
                # JAX may fail first, but only the supervisor knows the reason: give its event time to arrive.
                waiting.wait_for(lambda: losses, _REASON_SECONDS)
    # A result that arrived together with a loss is complete, so it counts.
    if losses and not results:
        raise losses[0]
    if waiting.count:
        raise interrupted(results[0] if results else None)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]


def ask(way: Channel, head: dict[str, Any], *, seconds: float = math.inf) -> tuple[Answer, ...]:
    """Send a short request and wait for every host's answer; Interrupt ends the wait.

    Raises:
      CheckError: A host's versions are incompatible, so it cannot read the request.
      ColocatedError: The hosts could not be reached, or went away meanwhile.
      TimeoutError: They did not answer within `seconds`.
    """
    try:
        return wait(way.hosts, lambda: way.ask(head), seconds=seconds)
    except LostError:
        raise
    except ColocatedError as error:
        there = wait(way.hosts, lambda: host_versions.query_versions(way.hosts), seconds=seconds)
        different = host_versions.differences(host_versions.here(), there)
        severe = [each for each in different if each.severe]
        if severe:
            raise host_versions.refuse(different, severe) from error
        raise
