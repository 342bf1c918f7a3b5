"""Decorators that call a training function again when slices change.

The names and their meanings follow pathwaysutils' ``elastic.manager.Manager`` (version 0.1.13), so that a program can
change from one to the other by its import.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pathways_jupyter.elastic.arguments import (
    ArgumentError,
    check_callable,
    check_seconds,
    check_slices,
    check_whole,
)
from pathways_jupyter.elastic.errors import ElasticRetryLimit, ElasticRuntimeError, ScaleUpSignalError, is_slice_down
from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.run_slices import Slices

RetryPolicy = Callable[[int, Exception], bool]


@dataclass(frozen=True)
class Retries:
    """When and how a function is called again; see :meth:`Manager.elastic_retry`.

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

    def call(self, slices: Slices, function: Callable[[], Any], name: str) -> Any:
        """Call `function`, whose name is `name`, until it returns; return its result.

        Raises:
          ElasticRuntimeError: No further attempt is allowed; its cause is the last error.
          TimeoutError: The slices did not come up in time.
        """
        import jax

        slices.start_monitoring(self.poll_interval)
        run, attempt, done = slices.own_run(name), 1, False
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


Function = TypeVar("Function", bound=Callable[..., Any])


class Manager(Slices):
    """The slices of this process, and those that its computation uses.

    Args:
      devices, session, settle_seconds, record: As for :class:`~pathways_jupyter.elastic.run_slices.Slices`.
    """

    def elastic_retry(
        self,
        max_retries: int | None = None,
        minimum_slice_count: int | None = None,
        poll_interval: float = 10,
        timeout: float | None = None,
        pre_callback: Callable[[], Any] | None = None,
        on_elastic_event_callback: Callable[[], Any] | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> Callable[[Function], Function]:
        """Return a decorator that calls a function again after the loss of a slice, or a :class:`ScaleUpSignalError`.

        Args:
          max_retries: Limit of attempts; the same as ``retry_policy=ElasticRetryLimit(max_retries)``.
          minimum_slice_count: Slices that an attempt needs; default: all. It waits for them before each attempt.
          poll_interval: Seconds between probes where there is no session.
          timeout: Longest wait for slices before an attempt, in seconds; default: without end.
          pre_callback: Called before each attempt.
          on_elastic_event_callback: Called after each loss or signal.
          retry_policy: Called with the number of the attempt (from 1) and its error; a false result ends the retries.

        Raises:
          ArgumentError: An argument cannot be used.

        The decorated function raises:
          ElasticRuntimeError: No further attempt is allowed; its cause is the last error.
          TimeoutError: The slices did not come up in time.
        """
        if max_retries is not None and retry_policy is not None:
            raise ArgumentError("Give max_retries or retry_policy, not both.", hint="Leave one of them out.")
        if max_retries is not None:
            check_whole("max_retries", max_retries, at_least=1)
        if minimum_slice_count is not None:
            check_whole("minimum_slice_count", minimum_slice_count, at_least=0)
            check_slices("minimum_slice_count", minimum_slice_count, self.total_slice_count)
        check_seconds("poll_interval", poll_interval, positive=True)
        if timeout is not None:
            check_seconds("timeout", timeout)
        functions = {
            "pre_callback": pre_callback,
            "on_elastic_event_callback": on_elastic_event_callback,
            "retry_policy": retry_policy,
        }
        for name, function in functions.items():
            if function is not None:
                check_callable(name, function)
        wanted = self.total_slice_count if minimum_slice_count is None else minimum_slice_count
        by_number: RetryPolicy = ElasticRetryLimit(max_retries) if max_retries is not None else _always
        retries = Retries(
            wanted=wanted,
            poll_interval=poll_interval,
            timeout=timeout,
            before_attempt=pre_callback,
            after_event=on_elastic_event_callback,
            allowed=retry_policy or by_number,
        )

        def decorator(function: Function) -> Function:
            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                name = getattr(function, "__name__", "")
                return retries.call(self, functools.partial(function, *args, **kwargs), name)

            return wrapper  # type: ignore[return-value]

        return decorator

    def pause_resume(self, max_retries: int, **more: Any) -> Callable[[Function], Function]:
        """Return :meth:`elastic_retry` for all slices: the function waits until they are back."""
        return self.elastic_retry(max_retries, None, **more)

    def replica_resize(self, max_resizes: int, **more: Any) -> Callable[[Function], Function]:
        """Return :meth:`elastic_retry` for at least one slice."""
        return self.elastic_retry(max_resizes, 1, **more)


def _always(attempt: int, error: Exception) -> bool:
    return True
