"""Wait for hosts in a way that Interrupt can end, and the loss of a host.

JAX waits in C++, where Python's main thread cannot handle a signal.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pathways_jupyter.base import tasks
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
    """Return the result of `work`, as :func:`pathways_jupyter.base.tasks.abandonable` does.

    Args:
      to: The hosts that the work needs.

    Raises:
      LostError: The session, or a host's slice, was lost meanwhile.
      BaseException: As for :func:`pathways_jupyter.base.tasks.abandonable`.
    """
    explained = threading.Event()

    @contextlib.contextmanager
    def watch(fail: Callable[[BaseException], None]) -> Iterator[None]:
        def lost(error: LostError) -> None:
            fail(error)
            explained.set()

        # The thread of the work may stay blocked in JAX for minutes.
        with loss.watch_for_loss((host.slice for host in to), lost) as is_watched:
            if not is_watched:
                explained.set()
            yield

    def run() -> T:
        try:
            return work()
        except LostError:
            # JAX may fail first, but only the supervisor knows the reason: give its event time to arrive.
            explained.wait(_REASON_SECONDS)
            raise

    return tasks.abandonable(
        run,
        name="colocated-call",
        seconds=seconds,
        stop=stop,
        stop_seconds=PATIENCE_SECONDS,
        interrupted=interrupted,
        watch=watch,
    )


def ask(channel: Channel, head: dict[str, Any], *, seconds: float = math.inf) -> tuple[Answer, ...]:
    """Send a short request and wait for every host's answer; Interrupt ends the wait.

    Raises:
      CheckError: A host's versions are incompatible, so it cannot read the request.
      ColocatedError: The hosts could not be reached, or went away meanwhile.
      TimeoutError: They did not answer within `seconds`.
    """
    try:
        return wait(channel.hosts, lambda: channel.ask(head), seconds=seconds)
    except LostError:
        raise
    except ColocatedError as error:
        there = wait(channel.hosts, lambda: host_versions.query_versions(channel.hosts), seconds=seconds)
        different = host_versions.differences(host_versions.here(), there)
        severe = [each for each in different if each.severe]
        if severe:
            raise host_versions.refuse(different, severe) from error
        raise
