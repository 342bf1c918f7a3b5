"""Waits for hosts so that Interrupt is heard: JAX waits in C++, where Python's main thread hears nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pathways_jupyter.colocated import loss
from pathways_jupyter.colocated.errors import ColocatedError

T = TypeVar("T")

PATIENCE_SECONDS = 5.0
"""How long hosts get to end what they were told to stop."""


@dataclass(frozen=True)
class Waited(Generic[T]):
    """What came of it.

    Attributes:
      result: What the work returned; None when it did not end in time after an interrupt.
      interrupted: Whether Interrupt was pressed meanwhile.
    """

    result: T | None
    interrupted: bool


def wait(work: Callable[[], T], stop: Callable[[], object]) -> Waited[T]:
    """Runs `work` in a thread; on KeyboardInterrupt runs `stop` in another, and waits a little longer.

    A second KeyboardInterrupt ends the waiting at once.

    Raises:
      ColocatedError: The session was lost meanwhile.
      Exception: Whatever `work` raised.
    """
    finished = threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            finished.set()

    def lost(reason: str) -> None:
        errors.append(
            ColocatedError(
                f"The session was lost while the call ran: {reason}", hint="%pathways reconnect gets another."
            )
        )
        finished.set()

    threading.Thread(target=run, name="colocated-call", daemon=True).start()
    interrupted = False
    with loss.told(lost):
        try:
            finished.wait()
        except KeyboardInterrupt:
            interrupted = True
            threading.Thread(target=stop, name="colocated-stop", daemon=True).start()
            finished.wait(PATIENCE_SECONDS)
    if errors and not interrupted:
        raise errors[0]
    return Waited(results[0] if results else None, interrupted)
