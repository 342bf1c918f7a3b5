"""Wait for hosts in a way that Interrupt can end.

JAX waits in C++, where Python's main thread cannot handle a signal. So the work runs in another thread, and the main
thread waits for it in Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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


@dataclass(frozen=True)
class Waited(Generic[T]):
    """The outcome of :func:`wait`.

    Attributes:
      result: What the work returned; None when it did not end in time after an interrupt.
      interrupted: Whether Interrupt was pressed meanwhile.
    """

    result: T | None
    interrupted: bool


def wait(to: Sequence[Host], work: Callable[[], T], stop: Callable[[], object] | None = None) -> Waited[T]:
    """Run `work` in a thread; on an interrupt run `stop` in another one and wait a little longer.

    A second interrupt ends the wait at once. No KeyboardInterrupt is raised on the way.

    Args:
      to: The hosts that the work needs.
      work: The work, which may block in C++.
      stop: Ends the work early; without it an interrupt returns without waiting for the work.

    Raises:
      LostError: The session, or a host's slice, was lost meanwhile.
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
            waiting.wait_for(lambda: results or errors or losses or waiting.count)
            if waiting.count and stop is not None:
                # In a thread as well, because it is a request to the same hosts and may block in C++ too.
                threading.Thread(target=stop, name="colocated-stop", daemon=True).start()
                waiting.wait_for(lambda: results or errors or losses or waiting.count > 1, PATIENCE_SECONDS)
            if is_watched and errors and isinstance(errors[0], LostError):
                # JAX may fail first, but only the supervisor knows the reason: give its event time to arrive.
                waiting.wait_for(lambda: losses, _REASON_SECONDS)
    interrupted = waiting.count > 0
    # A result that arrived together with a loss is complete, so it counts.
    if losses and not results:
        raise losses[0]
    if errors and not interrupted:
        raise errors[0]
    return Waited(results[0] if results else None, interrupted)


def ask(way: Channel, head: dict[str, Any]) -> tuple[Answer, ...]:
    """Send a short request and wait for every host's answer; Interrupt ends the wait.

    Raises:
      CheckError: A host's versions are incompatible, so it cannot read the request.
      ColocatedError: The hosts could not be reached, or went away meanwhile.
    """
    try:
        return uninterrupted(wait(way.hosts, lambda: way.ask(head)))
    except LostError:
        raise
    except ColocatedError as error:
        there = uninterrupted(wait(way.hosts, lambda: host_versions.query_versions(way.hosts)))
        different = host_versions.differences(host_versions.here(), there)
        severe = [each for each in different if each.severe]
        if severe:
            raise host_versions.refuse(different, severe) from error
        raise


def uninterrupted(waited: Waited[T]) -> T:
    """Return the result of `waited`.

    Raises:
      KeyboardInterrupt: It was interrupted.
    """
    if waited.interrupted or waited.result is None:
        raise KeyboardInterrupt
    return waited.result
