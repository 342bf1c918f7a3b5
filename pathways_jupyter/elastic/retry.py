"""Call a function again after the loss of a slice: what is behind the Manager's decorators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathways_jupyter.elastic.errors import ElasticRuntimeError, ScaleUpSignalError, is_slice_down
from pathways_jupyter.elastic.goodput import Spent

if TYPE_CHECKING:
    from pathways_jupyter.elastic.slices import Slices

RetryPolicy = Callable[[int, Exception], bool]


@dataclass(frozen=True)
class Retries:
    """When and how a function is called again; see :meth:`.manager.Manager.elastic_retry`.

    Attributes:
      wanted: Slices that an attempt needs.
      allowed: The retry policy.
    """

    wanted: int
    poll_interval: float
    timeout: float | None
    before_attempt: Callable[[], Any] | None
    after_event: Callable[[], Any] | None
    allowed: RetryPolicy

    def call(self, slices: Slices, function: Callable[[], Any]) -> Any:
        """Call `function` until it returns; return its result.

        Raises:
          ElasticRuntimeError: No further attempt is allowed; its cause is the last error.
          TimeoutError: The slices did not come up in time.
        """
        import jax

        slices.start_monitoring(self.poll_interval)
        run, attempt, done = slices.own_run(), 1, False
        try:
            while True:
                before = slices.active_slice_indices
                self._wait_for_slices(slices)
                run.goes_on(slices.active_slice_indices, before, attempt=attempt)
                if self.before_attempt is not None:
                    self.before_attempt()
                try:
                    with jax.default_device(slices.default_device):
                        result = function()
                    done = True
                    return result
                except (ScaleUpSignalError, jax.errors.JaxRuntimeError) as error:
                    with run.record.goodput.during(Spent.REINITIALIZATION):
                        _update(slices, error)
                        if self.after_event is not None:
                            self.after_event()
                    if not self.allowed(attempt, error):
                        raise ElasticRuntimeError(
                            f"Attempt {attempt} failed, and the retry policy allows no other."
                        ) from error
                attempt += 1
        finally:
            slices.close(done=done)

    def _wait_for_slices(self, slices: Slices) -> None:
        up = len(slices.health.trusted)
        waiting = slices.own_run().waiting(up, self.wanted) if up < self.wanted else contextlib.nullcontext()
        with waiting:
            slices.active_slice_indices = slices.health.wait_for(self.wanted, timeout=self.timeout)


def _update(slices: Slices, error: Exception) -> None:
    """Update the slices after an attempt has failed; raise `error` again if it is not about slices."""
    import jax

    if not isinstance(error, ScaleUpSignalError):
        if not is_slice_down(error):
            raise error
        slices.note_loss(error)
    # A trace that spans the loss cannot be finished, and would make the next start_trace fail.
    with contextlib.suppress(RuntimeError, ValueError):
        jax.profiler.stop_trace()
