"""Decorators that call a training function again when slices change, and the calls of earlier managers.

The names and their meanings follow pathwaysutils' ``elastic.manager.Manager`` (version 0.1.13), so that a program can
change from one to the other by its import; names of its earlier versions are kept as aliases.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pathways_jupyter.elastic.arguments import (
    ArgumentError,
    check_callable,
    check_seconds,
    check_slices,
    check_whole,
)
from pathways_jupyter.elastic.errors import ElasticRetryLimit, ElasticRuntimeError, ScaleUpSignalError, is_slice_down
from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.health import SETTLE_SECONDS
from pathways_jupyter.elastic.record import Record
from pathways_jupyter.elastic.run_slices import Slices
from pathways_jupyter.elastic.snapshots import Snapshots

if TYPE_CHECKING:
    import jax

    from pathways_jupyter.session.kernel.session import Session

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
      snapshot_period: Of how many steps :meth:`maybe_snapshot` takes a snapshot of one.
      reshard_check_period: Of how many steps :meth:`maybe_reshard_up` looks for more slices at one.

    Attributes:
      snapshots: The snapshots that :meth:`maybe_snapshot` takes.
    """

    def __init__(
        self,
        devices: Sequence[jax.Device] | None = None,
        *,
        session: Session | None = None,
        settle_seconds: float = SETTLE_SECONDS,
        snapshot_period: int = 1,
        reshard_check_period: int = 1,
        record: Record | None = None,
    ) -> None:
        check_whole("snapshot_period", snapshot_period, at_least=1)
        check_whole("reshard_check_period", reshard_check_period, at_least=1)
        super().__init__(devices, session=session, settle_seconds=settle_seconds, record=record)
        self.snapshots = Snapshots()
        self.snapshot_period = snapshot_period
        self.reshard_check_period = reshard_check_period

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

    # The names that earlier versions of pathwaysutils had.

    @property
    def good_slice_indices(self) -> frozenset[int]:
        """The same as :attr:`active_slice_indices`."""
        return self._active

    @property
    def good_slice_count(self) -> int:
        """The same as :attr:`active_slice_count`."""
        return self.active_slice_count

    @property
    def good_devices(self) -> list[jax.Device]:
        """The same as :attr:`active_devices`."""
        return self.active_devices

    @property
    def good_slice_to_devices(self) -> dict[int, Sequence[jax.Device]]:
        """The devices of the active slices, by slice index."""
        return {index: self.slice_to_devices[index] for index in sorted(self._active)}

    def scale_by_good_slices(self, x: int | float) -> int | float:
        """The same as :meth:`scale_by_active_slices`."""
        return self.scale_by_active_slices(x)

    def maybe_snapshot(
        self,
        step: int,
        snapshot_jax_arrays: Any,
        snapshot_controller: Any = None,
        force: bool = False,
        block: bool = False,
    ) -> None:
        """Take a snapshot if `step` is a multiple of :attr:`snapshot_period`, or with `force`.

        Args:
          snapshot_controller: What is not an array; returned by :meth:`get_resharded_snapshot`.
          block: Wait until it is whole.
        """
        self.start_monitoring()
        if force or step % self.snapshot_period == 0:
            with self.own_run().record.goodput.during(Spent.CHECKPOINT_SAVE):
                taken = self.snapshots.take(step, snapshot_jax_arrays, snapshot_controller)
                if block:
                    taken.finished.wait()

    def get_resharded_snapshot(self, mesh: jax.sharding.Mesh) -> tuple[int, Any, Any]:
        """Return the step, the arrays on `mesh`, and the rest of the newest snapshot that can be read.

        Raises:
          ElasticRuntimeError: There is none.
        """
        import jax

        for snapshot in self.snapshots.candidates():
            try:
                with self.own_run().record.goodput.during(Spent.CHECKPOINT_RESTORE):
                    state = snapshot.on(mesh, usable=self.health.up)
                self.own_run().restored(snapshot.step, self._active)
                return snapshot.step, state, snapshot.extra
            except ElasticRuntimeError:
                self.snapshots.drop(snapshot)
            except jax.errors.JaxRuntimeError as error:
                if not is_slice_down(error):
                    raise
                self.snapshots.drop(snapshot)
        raise ElasticRuntimeError("There is no snapshot that can be read.", hint="Call maybe_snapshot more often.")

    def maybe_reshard_down(
        self,
        error: Exception,
        elastic_handler: Callable[..., Any],
        handler_args: Sequence[Any] = (),
        handler_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `elastic_handler` with the remaining slices active, until it succeeds; return its result.

        Raises:
          Exception: `error`, or the handler's, if it is not about slices.
        """
        import jax

        run, before = self.own_run(), self._active
        with run.record.goodput.during(Spent.REINITIALIZATION):
            while True:
                if not is_slice_down(error):
                    raise error
                self.note_loss(error)
                try:
                    result = elastic_handler(*handler_args, **(handler_kwargs or {}))
                except jax.errors.JaxRuntimeError as another:
                    error = another
                else:
                    run.goes_on(self._active, before)
                    return result

    def maybe_reshard_up(
        self,
        step: int,
        snapshot_jax_arrays: Any,
        elastic_handler: Callable[..., Any],
        snapshot_controller: Any = None,
        handler_args: Sequence[Any] = (),
        handler_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """If more slices are available at this step, activate them, take a snapshot, and call `elastic_handler`.

        Returns:
          The handler's result; None if there was nothing to do.
        """
        import jax

        self.start_monitoring()
        if step % self.reshard_check_period or not self.available_inactive_slices:
            return None
        run, before = self.own_run(), self._active
        self.maybe_snapshot(step, snapshot_jax_arrays, snapshot_controller, force=True, block=True)
        try:
            with run.record.goodput.during(Spent.SCALE_UP):
                self.active_slice_indices = self.health.trusted | before
                result = elastic_handler(*handler_args, **(handler_kwargs or {}))
        except jax.errors.JaxRuntimeError as error:
            return self.maybe_reshard_down(error, elastic_handler, handler_args, handler_kwargs)
        run.goes_on(self._active, before)
        return result


def _always(attempt: int, error: Exception) -> bool:
    return True
