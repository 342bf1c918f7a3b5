"""Decorators that call a training function again when slices change.

The names and their meanings follow pathwaysutils' ``elastic.manager.Manager`` (version 0.1.13), so that a program can
change from one to the other by its import.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from pathways_jupyter.base.sentences import say
from pathways_jupyter.elastic.arguments import (
    ArgumentError,
    check_callable,
    check_seconds,
    check_slices,
    check_whole,
)
from pathways_jupyter.elastic.errors import ElasticRuntimeError, ScaleUpSignalError, is_slice_down
from pathways_jupyter.elastic.event_kinds import Kind, listed, paused_words
from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.run_slices import Slices

RetryPolicy = Callable[[int, Exception], bool]


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
        for name, callback in (
            ("pre_callback", pre_callback),
            ("on_elastic_event_callback", on_elastic_event_callback),
            ("retry_policy", retry_policy),
        ):
            if callback is not None:
                check_callable(name, callback)
        minimum = self.total_slice_count if minimum_slice_count is None else minimum_slice_count

        def decorator(function: Function) -> Function:
            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                import jax

                self.start_monitoring(poll_interval)
                record, attempt, done = self.own_record(getattr(function, "__name__", "")), 1, False
                try:
                    while True:
                        self._begin_attempt(attempt, minimum, timeout)
                        if pre_callback is not None:
                            pre_callback()
                        try:
                            with jax.default_device(self.default_device):
                                result = function(*args, **kwargs)
                            done = True
                            return result
                        except (ScaleUpSignalError, jax.errors.JaxRuntimeError) as error:
                            with record.goodput.during(Spent.REINITIALIZATION):
                                if isinstance(error, jax.errors.JaxRuntimeError):
                                    if not is_slice_down(error):
                                        raise
                                    self.note_loss(error)
                                # A trace that spans the change cannot be finished, and would make the next one fail.
                                with contextlib.suppress(RuntimeError, ValueError):
                                    jax.profiler.stop_trace()
                                if on_elastic_event_callback is not None:
                                    on_elastic_event_callback()
                            if attempt == max_retries or (retry_policy and not retry_policy(attempt, error)):
                                raise ElasticRuntimeError(
                                    f"Attempt {attempt} failed, and the retry policy allows no other."
                                ) from error
                        attempt += 1
                finally:
                    self.close(done=done)

            return wrapper  # type: ignore[return-value]

        return decorator

    def _begin_attempt(self, attempt: int, minimum: int, timeout: float | None) -> None:
        """Use all slices that can be used, and wait until these are at least `minimum`."""
        record, before, up = self.own_record(), self.active_slice_indices, len(self.health.trusted)
        if up < minimum:
            record.add(Kind.WAITING, paused_words(up, minimum))
        with record.goodput.during(Spent.SLICE_DOWN):
            active = self.active_slice_indices = self.health.wait_for(minimum, timeout=timeout)
        slices, has_grown = tuple(sorted(active)), bool(before) and not active <= before
        if attempt > 1 or up < minimum or has_grown:
            said = say("Attempt {number} begins on {slices}.", number=attempt, slices=listed(slices))
            record.add(Kind.GROWN if has_grown else Kind.RESUMED, said, slices=slices)
        else:
            record.uses(len(slices))

    def pause_resume(self, max_retries: int, **more: Any) -> Callable[[Function], Function]:
        """Return :meth:`elastic_retry` for all slices: the function waits until they are back."""
        return self.elastic_retry(max_retries, None, **more)

    def replica_resize(self, max_resizes: int, **more: Any) -> Callable[[Function], Function]:
        """Return :meth:`elastic_retry` for at least one slice."""
        return self.elastic_retry(max_resizes, 1, **more)
