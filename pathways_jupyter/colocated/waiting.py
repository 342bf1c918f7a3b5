"""Waits for hosts so that Interrupt is heard: JAX waits in C++, where Python's main thread hears nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pathways_jupyter.colocated import loss, versions
from pathways_jupyter.colocated.errors import ColocatedError, LostError
from pathways_jupyter.colocated.host import Host

if TYPE_CHECKING:
    from pathways_jupyter.colocated.channel import Answer, Channel

T = TypeVar("T")

PATIENCE_SECONDS = 5.0
"""How long hosts get to end what they were told to stop."""

_WORD_SECONDS = 1.0
"""How long a call that failed waits for the supervisor to say what was lost; a sidecar's loss it does not hear of."""


@dataclass(frozen=True)
class Waited(Generic[T]):
    """What came of it.

    Attributes:
      result: What the work returned; None when it did not end in time after an interrupt.
      interrupted: Whether Interrupt was pressed meanwhile.
    """

    result: T | None
    interrupted: bool


def wait(to: Sequence[Host], work: Callable[[], T], stop: Callable[[], object] | None = None) -> Waited[T]:
    """Runs `work` in a thread; on KeyboardInterrupt runs `stop` in another, and waits a little longer.

    A second KeyboardInterrupt ends the waiting at once.

    Args:
      to: The hosts that the work needs.
      work: What to do.
      stop: What ends it early; without it an interrupt does not wait for it.

    Raises:
      LostError: The session, or a host's slice, was lost meanwhile.
      Exception: Whatever `work` raised.
    """
    finished, heard = threading.Event(), threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []
    losses: list[LostError] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            finished.set()

    def lost(error: LostError) -> None:
        losses.append(error)
        heard.set()
        finished.set()

    interrupted = False
    with loss.told((host.slice for host in to), lost) as may_tell:
        threading.Thread(target=run, name="colocated-call", daemon=True).start()
        try:
            finished.wait()
        except KeyboardInterrupt:
            interrupted = True
            if stop is not None:
                threading.Thread(target=stop, name="colocated-stop", daemon=True).start()
                with contextlib.suppress(KeyboardInterrupt):
                    finished.wait(PATIENCE_SECONDS)
        if may_tell and errors and isinstance(errors[0], LostError):
            # JAX may be the first to fail, but the supervisor knows why.
            heard.wait(_WORD_SECONDS)
    if losses and not results:
        raise losses[0]
    if errors and not interrupted:
        raise errors[0]
    return Waited(results[0] if results else None, interrupted)


def ask(way: Channel, head: dict[str, Any]) -> tuple[Answer, ...]:
    """Sends a short request, and waits for every host's answer so that Interrupt is heard.

    Raises:
      CheckError: A host's versions are such that it cannot read the request.
      ColocatedError: The hosts could not be reached, or went away meanwhile.
    """
    try:
        return _uninterrupted(wait(way.hosts, lambda: way.ask(head)))
    except LostError:
        raise
    except ColocatedError as error:
        there = _uninterrupted(wait(way.hosts, lambda: versions.asked(way.hosts)))
        different = versions.differences(versions.here(), there)
        severe = [each for each in different if each.severe]
        if severe:
            raise versions.refuse(different, severe) from error
        raise


def _uninterrupted(waited: Waited[T]) -> T:
    if waited.result is None:
        raise KeyboardInterrupt
    return waited.result
