"""Faults at random, for a soak: one after the other, until someone ends them.

The seed decides which slices are hit and how, so that a run that failed can be repeated.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pathways_jupyter.elastic import faults
from pathways_jupyter.elastic.fault_targets import Target
from pathways_jupyter.elastic.faults import Fault
from pathways_jupyter.errors import ConfigError, PathwaysError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What to inject.

    Attributes:
      every: Seconds between the end of one fault and the next one.
      seconds: How long a fault lasts.
      times: The number of faults; None goes on until :meth:`RandomFaults.stop`.
    """

    every: float
    seconds: float
    seed: int
    times: int | None = None
    yes: bool = False


class RandomFaults:
    """Injects faults into `target` from a thread of its own.

    Args:
      said: Called on that thread with each fault, and with the error of one that could not be injected.

    Raises:
      ConfigError: The target's slices are not known, so that none can be chosen.
    """

    def __init__(self, target: Target, plan: Plan, said: Callable[[Fault | PathwaysError], None]) -> None:
        if not target.slices:
            raise ConfigError("There is no slice to choose from.", hint="Connect first.")
        self._target = target
        self._plan = plan
        self._said = said
        self._stopped = threading.Event()
        # A daemon: the faults end with the process, and each is undone without it.
        self._thread = threading.Thread(target=self._run, name="random-faults", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether there are more to come."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def stop(self) -> None:
        """Inject no more; what was injected ends by itself, or by :func:`faults.heal`."""
        self._stopped.set()

    def _run(self) -> None:
        chance, plan = random.Random(self._plan.seed), self._plan
        slices, done = sorted(self._target.slices or ()), 0
        while (plan.times is None or done < plan.times) and not self._stopped.wait(plan.every):
            number = chance.choice(slices)
            inject = chance.choice((self._down, self._down, self._drain, self._slow))
            try:
                self._said(inject(number))
            except PathwaysError as error:
                # E.g. the slice is still down after the fault before: the next one may succeed.
                self._said(error)
            except Exception:
                logger.exception("a random fault")
            done += 1

    def _down(self, number: int) -> Fault:
        return faults.slice_down(self._target, number, seconds=self._plan.seconds, yes=self._plan.yes)

    def _drain(self, number: int) -> Fault:
        return faults.drain_node(self._target, number, seconds=self._plan.seconds, yes=self._plan.yes)

    def _slow(self, number: int) -> Fault:
        if not self._target.is_embedded:
            return self._down(number)
        return faults.slow(self._target, number, seconds=self._plan.seconds)
